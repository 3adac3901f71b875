"""How `make test` shares its tests between workers: what takes longest begins first, so that all end together.

The tests of one file stay on one worker, in order, because end-to-end tests share processes within a file. Tests of the
folders in `ONE_BY_ONE` share nothing, so each may go anywhere. Files in `TOGETHER` share more: the sources that tidy
tests parse, the names of the hosts that the tests of the overlay network make on this machine, and runs of the
simulator. The order
below was measured (`--durations=0`); a file that is missing in it only begins later than would be best.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ONE_BY_ONE = ("tests/simulation/", "tests/property/")
TOGETHER = ("tests/tidy/", "tests/e2e/test_overlay", "tests/simulation/test_lifecycles.py")
WAITING = (
    "tests/e2e/",
    "tests/browser/",
    "tests/contract/",
    "tests/unit/cli/test_up.py",
)  # for processes, leases and servers
LONGEST_FIRST = (
    "tests/simulation/test_seeds.py",
    "tests/e2e/test_executor.py",
    "tests/e2e/test_failover.py",
    "tests/e2e/test_chaos.py",
    "tests/e2e/test_elastic.py",
    "tests/browser/",
    "tests/e2e/test_hostile.py",
    "tests/e2e/test_tls.py",
    "tests/e2e/test_following.py",
    "tests/e2e/test_alloc.py",
    "tests/e2e/test_node_health.py",
    "tests/e2e/test_tokens.py",
    "tests/e2e/test_overlay",
    "tests/simulation/",
    "tests/e2e/test_why.py",
    "tests/e2e/test_gangs_cli.py",
    "tests/e2e/test_gang_survival.py",
    "tests/e2e/test_embedded.py",
    "tests/e2e/test_survival.py",
    "tests/property/test_rest_fuzz.py",
    "tests/e2e/",
    "tests/unit/cli/test_up.py",
    "tests/contract/",
    "tests/property/",
    "tests/tidy/",
)


def rank(nodeid: str) -> int:
    """Where a test stands in the order; the many short ones come last and fill what is left."""
    return next(
        (at for at, begin in enumerate(LONGEST_FIRST) if nodeid.startswith(begin)), len(LONGEST_FIRST)
    )


def scope(nodeid: str) -> str:
    """What stays together on one worker."""
    together = next((begin for begin in TOGETHER if nodeid.startswith(begin)), "")
    return together or (nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0])


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out scopes in the order of the collection, which `sort` has arranged."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def sort(items: list[pytest.Item]) -> None:
    """By rank, and scopes that mostly wait between those that mostly compute: all workers waiting, or none, is slow."""
    items.sort(key=lambda item: rank(item.nodeid))
    scopes: dict[str, list[pytest.Item]] = {}
    for item in items:
        scopes.setdefault(scope(item.nodeid), []).append(item)
    waiting = [name for name in scopes if name.startswith(WAITING)]
    computing = [name for name in scopes if not name.startswith(WAITING)]
    places = {name: at / len(names) for names in (waiting, computing) for at, name in enumerate(names)}
    items[:] = [item for name in sorted(scopes, key=places.__getitem__) for item in scopes[name]]


def scheduler(config: pytest.Config, log: object) -> LongestFirst | None:
    """For `--dist loadfile`, which is what scripts/test and scripts/check ask for."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return LongestFirst(config, log)
