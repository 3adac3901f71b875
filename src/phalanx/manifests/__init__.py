"""Job files, other people's manifests and cluster files, read into our own words. Start at `read.py`."""
