"""Starts the process of a container from its path, with neither site-packages nor the phalanx package on sys.path."""

import importlib
import sys

if __name__ == "__main__":
    _above = __file__.rsplit("/", 2)[0]
    sys.path.append(_above)
    _process = importlib.import_module("containers.process")
    sys.path.remove(_above)
    sys.exit(_process.main(sys.argv[1:]))
