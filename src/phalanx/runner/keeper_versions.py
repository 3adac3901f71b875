"""Which version of the keeper can do what: a keeper outlives the runner that started it, and may be of an older one.

What an older keeper cannot do is done without where that is possible. Where it is not, the attempt is refused with the
reason, and another node may take it. An older keeper is replaced as soon as it has nothing to do, or with its tasks by
`phalanx runner stop --drain`.
"""

from __future__ import annotations

import errno

from phalanx.core.runner.effects import Spawn
from phalanx.runner.parameters import own_command

HOLDS_SINCE = 2  # the first version with held attempts
LEASE_ENDS_SINCE = 3  # the first that gets the instant at which a lease ends
STARTS_EXPIRE_SINCE = 4  # the first that answers a ping, and starts nothing after its instant
STOPS_SAY_WHY_SINCE = 4  # the first whose ends have the reason of a stop
MEMOS_SINCE = 5  # the first that gives memos back, and enters threaded cgroups
MAKES_FOLDERS_SINCE = 5  # the first that makes the folder for artifacts
JOINS_STREAMS_SINCE = 6  # the first that writes both streams into one log
ATTACHES_SINCE = 7  # the first that stops an attempt whose reader is far behind
OWN_COMMANDS_SINCE = 7  # the first that takes a command with the start of an attempt
INPUTS_SINCE = 8  # the first that gives attempts standard input

_HINT = "it is replaced when it runs no task, or by `phalanx runner stop --drain` and another start"


def refusal(version: int, effect: Spawn) -> tuple[str, str] | None:
    """Why a keeper of this version cannot start an attempt, with the code of a keeper's refusal; None if it can."""
    command = effect.brief.command
    if effect.held and version < HOLDS_SINCE:
        return "fenced", f"its keeper is of an older version and cannot hold back a gang; {_HINT}"
    if version < OWN_COMMANDS_SINCE and not command.image and own_command(effect.brief, effect.start):
        return "exhausted", f"the keeper of its node is of an older version and knows no parameters; {_HINT}"
    if version < INPUTS_SINCE and has_input(effect):
        return "exhausted", f"the keeper of its node is of an older version without standard input; {_HINT}"
    return None


def has_input(effect: Spawn) -> bool:
    """Whether it is given standard input: of the tasks of its job the first is."""
    return effect.brief.command.stdin and effect.start.key[1] == 0


def without_spaces(spaces: dict[str, str]) -> dict[str, str]:
    """A keeper of an older version knows no namespaces: names can be done without, a network cannot."""
    if "net" in spaces:
        raise OSError(errno.ENOTSUP, f"the keeper of this node is of an older version; {_HINT}")
    return {}
