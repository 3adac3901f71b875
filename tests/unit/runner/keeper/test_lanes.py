"""When the end of an attempt is worth a message of its own: as soon as its lane is half done."""

from __future__ import annotations

from phalanx.runner.keeper.attempt import Lanes, RecordAndSend
from tests.unit.runner.keeper.test_table import Driver


def urgencies(driver: Driver, keys: str) -> list[bool]:
    """Whether the end of each of these is sent at once; they end in this order."""
    found: list[bool] = []
    for key in keys:
        attempt = driver.table.running[key]
        attempt.code, attempt.ended_at = 0, driver.now
        driver.table.leader_ended(attempt)
        attempt.close(oom=False)
        effects = driver.table.ended(attempt, driver.now)
        found += [each.urgent for each in effects if isinstance(each, RecordAndSend) and each.ended]
        driver.do(effects)
    return found


def test_ends_are_sent_when_no_more_wait_than_have_ended():
    driver = Driver()
    for key in "abcdefghi":
        driver.start(key, lane=1)
    # Eight wait behind a. When e ends, five have ended and four wait; two more, then one, then none are left.
    assert urgencies(driver, "abcdefghi") == [False, False, False, False, True, False, True, True, True]


def test_a_lane_that_is_filled_again_begins_to_count_anew():
    driver = Driver()
    for key in "abc":
        driver.start(key, lane=1)
    assert urgencies(driver, "a") == [False]
    for key in "defgh":
        driver.start(key, lane=1)
    assert urgencies(driver, "bcd") == [False, False, True]


def test_one_in_no_lane_and_the_last_of_a_lane_are_sent_at_once():
    lanes = Lanes()
    assert lanes.is_short(None)
    lanes.take(3, "a")
    assert lanes.is_short(3)
    assert lanes.leave(3, "a") is None


def test_nothing_is_remembered_of_a_lane_that_has_ended():
    driver = Driver()
    for key in "abcd":
        driver.start(key, lane=1)
    urgencies(driver, "abcd")
    assert not driver.table.lanes._ends
