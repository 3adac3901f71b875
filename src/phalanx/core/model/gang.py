"""What holds the tasks of a job together: starting whole, standing close, restarting and ending as one.

The words of Koordinator and JobSet map onto these values (docs/guides/coming-from.md); the native job file writes
them directly.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Match = Literal["once-satisfied", "only-waiting", "waiting-and-running"]
WAIT_S = 60.0
GANG_TASKS_MAX = 10_000  # members are looked at together, so their number is bounded


class Gather(Struct, frozen=True, omit_defaults=True):
    """How close members have to stand: all in one domain of `layer` (must), or in as few as possible (prefer).

    With `multiple` above 1 every domain of the layer holds a multiple of that many members.
    """

    layer: str
    must: bool = False
    multiple: int = 1


class Gang(Struct, frozen=True, omit_defaults=True):
    """Members start together or not at all, `Group.needed` of each group at the least."""

    gather: tuple[Gather, ...] = ()
    strict: bool = True  # False: members that found a place keep it while the others look for theirs
    match: Match = "once-satisfied"
    wait_s: float = WAIT_S  # how long members hold their places for the others before all let go
    affinity: str = ""  # stand near running tasks of the same key
    id: str = ""  # what a manifest calls the gang: "default/gang-a,default/gang-b"


class IncompleteGang(Struct, frozen=True, omit_defaults=True):
    """A gang whose members have not all come. Nothing of it is placed until it is amended with the others."""

    lacks: str  # in words
    manifests: str = ""  # what it was made from so far, for whoever amends it; nobody here reads it
    version: int = 0  # how often it was amended
    needed: int = 0  # how many members it cannot start without; 0: not known
    members: int = 0  # how many have come; before the first of them a group without names stands for all


Action = Literal["fail", "restart", "restart-uncounted", "restart-replica", "restart-replica-uncounted"]


class Rule(Struct, frozen=True, omit_defaults=True):
    """What a failure does if it matches: empty lists match everything."""

    action: Action
    reasons: tuple[str, ...] = ()  # words of `Why`
    patterns: tuple[str, ...] = ()  # regular expressions over the message
    groups: tuple[str, ...] = ()


class Restart(Struct, frozen=True, omit_defaults=True):
    """What the failure of one task, once its own retries are used up, does to the whole job.

    Without any of these the other tasks go on and the job fails when they have ended.
    """

    whole: bool = False  # start every task anew, at most `limit` times
    limit: int = 0
    fails_job: bool = False  # a task that failed for good ends the job
    shared: bool = False  # the retries are one budget for all tasks of the job
    counts_evictions: bool = False  # evictions and losses use up restarts and retries, as failures do
    rules: tuple[Rule, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Those of all rules, in order: they are matched together."""
        return tuple(pattern for rule in self.rules for pattern in rule.patterns)


class Success(Struct, frozen=True, omit_defaults=True):
    """When the job has done its work: every task of `groups` (all, if none is named), or any one of them."""

    any: bool = False
    groups: tuple[str, ...] = ()
