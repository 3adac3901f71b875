"""The lives of gangs, nodes and promises: a sentence for each move from one phase to the next.

The drawings in docs/concepts/lifecycles.md are made from these tables and from that of tasks (`MOVES` in
core/cluster/jobs.py). tests/simulation/test_lifecycles.py holds them against everything that `apply` does.
"""

from __future__ import annotations

NONE = ""  # before a thing exists, and after it is gone

GANG_MOVES: dict[tuple[str, str], str] = {
    (NONE, "Draft"): "a PodGroup or some of its pods were applied, and members are missing",
    (NONE, "Waiting"): "submitted with all its members",
    ("Draft", "Waiting"): "the last member was applied",
    ("Draft", "Ended"): "the user cancelled it",
    ("Waiting", "Forming"): "a plan placed the members it needs; each waits at the barrier of its node",
    ("Waiting", "Ended"): "the user cancelled it, or its job ended as a whole",
    ("Forming", "Started"): "every member is ready, so one durable event releases all of them",
    (
        "Forming",
        "Waiting",
    ): "a member was lost or not ready in time: all give their places back, none has run",
    ("Forming", "Ended"): "the user cancelled it, or its job ended as a whole",
    ("Started", "Forming"): "members were placed that come back or are one more; they wait at the barrier",
    ("Started", "Waiting"): "a member failed or was lost, and the whole gang restarts",
    ("Started", "Ended"): "every task has ended, the job ended as a whole, or the user cancelled it",
    ("Ended", NONE): "it left memory; its end stays in the history",
}

NODE_MOVES: dict[tuple[str, str], str] = {
    (NONE, "Online"): "its runner registered",
    ("Online", "Unreachable"): "the connection ended, or another coordinator leads; the lease runs on",
    ("Unreachable", "Online"): "its runner connected again",
    ("Unreachable", "Unhealthy"): "its runner connected again and still cannot start tasks",
    (
        "Unreachable",
        "Offline",
    ): "its lease ran out; its own runner, keeper or watchdog has stopped what ran there",
    ("Online", "Offline"): "an operator declared it lost, or its lease ran out",
    ("Online", "Unhealthy"): "its runner cannot start tasks",
    ("Unhealthy", "Online"): "its runner can start tasks again",
    ("Unhealthy", "Unreachable"): "the connection ended",
    ("Online", "Stopping"): "its runner stops in order; tasks run on under the lease",
    ("Stopping", "Unreachable"): "its runner has stopped",
    ("Online", "Quarantined"): "an attempt was given up there; no work until its end is confirmed",
    ("Quarantined", "Online"): "the end of every leftover attempt is confirmed",
    ("Quarantined", "Unreachable"): "the connection ended before those ends were confirmed",
    (
        "Unreachable",
        "Quarantined",
    ): "its runner connected again, and attempts were given up there meanwhile or before",
    ("Offline", "Quarantined"): "its runner registered again and still holds attempts that were given up",
    ("Offline", "Online"): "its runner registered again and holds nothing",
    ("Offline", NONE): "it was removed, by an operator or after a day",
    ("Online", NONE): "an operator removed it",
}

PROMISE_MOVES: dict[tuple[str, str], str] = {
    (NONE, "Leaving"): "a plan found victims: they are asked to leave, and their places are set aside",
    (NONE, "Free"): "another promise gave way, and what this one takes of it is free already",
    ("Leaving", "Free"): "the last victim has left",
    ("Leaving", NONE): "withdrawn: too late, no longer needed, or its job was cancelled or restarted",
    ("Free", NONE): "kept: its job was placed there; or withdrawn",
}
