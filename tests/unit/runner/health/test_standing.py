"""When a check counts as failing: at once; when as passing: after several passes in a row."""

from __future__ import annotations

from phalanx.core.model.health import DeviceHealth, NodeHealth
from phalanx.runner.health.standing import CheckResult, CheckStanding


def after(*found: CheckResult, passes: int = 3, evict: bool = False) -> NodeHealth | None:
    standing = CheckStanding(passes, evict=evict)
    for each in found:
        standing.note(each)
    return standing.health


BAD, GOOD = CheckResult("disk /", "disk / is 99% full"), CheckResult("disk /")


def test_one_failure_is_enough_and_it_takes_several_passes_to_return() -> None:
    assert after(GOOD) is None
    assert after(BAD) == NodeHealth("disk / is 99% full")
    assert after(BAD, GOOD, GOOD) is not None
    assert after(BAD, GOOD, GOOD, GOOD) is None


def test_a_failure_in_between_begins_the_count_anew() -> None:
    assert after(BAD, GOOD, GOOD, BAD, GOOD, GOOD) is not None


def test_numbers_that_change_are_no_news_and_other_words_are() -> None:
    assert after(BAD, CheckResult("disk /", "disk / is 98% full")) == NodeHealth("disk / is 99% full")
    assert after(BAD, CheckResult("disk /", "disk / cannot be read")) == NodeHealth("disk / cannot be read")


def test_checks_of_the_node_are_told_together_and_devices_apart() -> None:
    found = after(BAD, CheckResult("memory", "memory: 1 MiB"), CheckResult("GPU 1", "Xid 79", 1), evict=True)
    assert found == NodeHealth("disk / is 99% full; memory: 1 MiB", (DeviceHealth(1, "Xid 79"),), True)


def test_a_reason_is_one_printable_line() -> None:
    assert after(CheckResult("command", "a\x1b[31m\tb\nc")) == NodeHealth("a [31m b c")
