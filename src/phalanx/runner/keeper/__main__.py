"""Starts the keeper from its path, with neither site-packages nor the phalanx package on sys.path.

The folder above is on sys.path only while the modules beside this file are imported, and at its end, so that no file
of the runner can replace one of the standard library.
"""

import importlib
import sys

if __name__ == "__main__":
    _above = __file__.rsplit("/", 2)[0]
    sys.path.append(_above)
    _service = importlib.import_module("keeper.service")
    sys.path.remove(_above)
    sys.exit(_service.main(sys.argv[1:]))
