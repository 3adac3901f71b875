"""Health checks of a node by its runner: what is looked at, and what is reported. Start at `monitor.py`."""
