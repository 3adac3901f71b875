"""The chaos rig: a whole cluster of real processes with faults drawn from a seed, judged by what its tasks wrote."""
