"""Reads job files, manifests of other systems and cluster files into our own specs. Start at `read.py`."""
