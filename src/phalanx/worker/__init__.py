"""A Python worker: the program of the tasks of an `Executor`, which stays and serves many calls."""
