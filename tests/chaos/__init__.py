"""The kill rig: a whole cluster of real processes, tormented by a seed, judged by what its tasks wrote themselves."""
