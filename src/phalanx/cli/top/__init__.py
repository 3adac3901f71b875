"""`phalanx top`: the cluster live on a terminal.

`snapshot.py` reads the cluster, `heat_map.py`, `map_layout.py`, `job_rows.py`, `alarms.py` and `log_tail.py` turn what
was read into rows and cells and know nothing of a terminal. `feed.py` keeps the snapshot fresh. Everything that
imports Textual is imported by `command.py` when a screen is opened, and by nothing else.
"""
