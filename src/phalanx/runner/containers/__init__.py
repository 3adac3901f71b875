"""Tasks in containers, through the API of podman or Docker; docs/decisions/0075 says how.

`preparing.py` gets images ready, in the runner. `process.py` is the program that the keeper starts for an attempt with
an image: it makes the container, passes its output on and ends with its exit code. It runs with neither site-packages
nor the phalanx package, so what it imports (`runtime`, `body`, `joining`, `mounts`, `rights`) has the standard library
alone.
"""
