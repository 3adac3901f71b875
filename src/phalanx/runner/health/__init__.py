"""Health checks of a node by its runner: what is looked at, and what the coordinator is told. Start at `monitor.py`."""
