"""What the keeper decides, without side effects: requests, ends and time in, effects out."""

from __future__ import annotations

import json
import signal
from typing import Any

from phalanx.runner.keeper.attempt import (
    CloseInput,
    KeeperEffect,
    KeptAttempt,
    RecordAndSend,
    RecordLine,
    SendLine,
    Signal,
    SpawnProcess,
)
from phalanx.runner.keeper.table import (
    AGAIN_S,
    FENCE_GRACE_S,
    LEASE_S_MAX,
    STOPPED_MAX,
    KeeperTable,
    without_questions,
)

TERM, KILL, CONT, STOP = signal.SIGTERM, signal.SIGKILL, signal.SIGCONT, signal.SIGSTOP


class Driver:
    """Carries nothing out: it answers each spawn, and records what was sent, journalled and signalled."""

    def __init__(self, table: KeeperTable | None = None) -> None:
        self.table = table or KeeperTable()
        self.now = 100.0
        self.lines: list[list[Any]] = []
        self.journal: list[list[Any]] = []
        self.signals: list[tuple[str, tuple[int, ...]]] = []
        self.missing: set[str] = set()
        self.slow: set[str] = set()
        self.pid = 0
        self.ask("brief", "b", {"argv": ["work"], "env": {}})

    def ask(self, *request: Any) -> list[list[Any]]:
        """Serve a request; returns what was sent because of it."""
        return self.do(self.table.serve(list(request), self.now))

    def start(self, key: str, **options: Any) -> list[list[Any]]:
        return self.ask("start", key, "b", {"out": "", "err": "", **options})

    def wait(self, seconds: float) -> list[list[Any]]:
        """Let time pass, and look when the table asked for it."""
        said, until = [], self.now + seconds
        while self.table.is_on_watch and self.table.next_at <= until:
            self.now = max(self.now, self.table.next_at)
            said += self.do(self.table.due(self.now))
        self.now = until
        return said

    def end(self, key: str, code: int = 0) -> list[list[Any]]:
        attempt = self.table.running[key]
        attempt.code, attempt.ended_at = code, self.now
        self.table.leader_ended(attempt)
        attempt.close(oom=False)
        return self.do(self.table.ended(attempt, self.now))

    def do(self, effects: list[KeeperEffect]) -> list[list[Any]]:
        said: list[list[Any]] = []
        for effect in effects:
            match effect:
                case SpawnProcess():
                    effects += self._spawn(effect)
                case Signal():
                    self.signals.append((effect.attempt.key, effect.numbers))
                case RecordLine():
                    self.journal.append(json.loads(effect.line))
                case SendLine():
                    said.append(json.loads(effect.line)[:3])
                case RecordAndSend():
                    self.journal.append(json.loads(effect.line))
                    said.append(json.loads(effect.line)[:2])
        self.lines += said
        return said

    def _spawn(self, effect: SpawnProcess) -> list[KeeperEffect]:
        if effect.key in self.missing:
            return self.table.refused(effect.key, "not_found", "no such program", self.now)
        if effect.held:
            return [] if effect.key in self.slow else self.table.prepared(effect.key)
        self.pid += 1
        attempt = KeptAttempt(effect.key, effect.options)
        attempt.pid, attempt.started_at = self.pid, self.now
        return self.table.started(attempt, self.now)


def test_a_key_is_started_once_and_told_again_when_asked_again():
    driver = Driver()
    assert driver.start("a") == [["started", "a"]]
    assert [line[:2] for line in driver.start("a")] == [["started", "a"]]
    driver.end("a", 3)
    assert [line[:2] for line in driver.start("a")] == [["started", "a"], ["ended", "a"]]
    assert [line[0] for line in driver.journal] == ["started", "ended"]


def test_attempts_of_one_lane_run_one_after_another():
    driver = Driver()
    assert driver.start("a", lane=1) == [["started", "a"]]
    assert driver.start("b", lane=1) == driver.start("c", lane=1) == []
    assert driver.start("d", lane=2) == [["started", "d"]]
    assert driver.end("a") == [["ended", "a"], ["started", "b"]]
    assert driver.end("b") == [["ended", "b"], ["started", "c"]]


def test_a_lane_goes_on_past_those_that_are_refused():
    driver = Driver()
    driver.missing = {"b", "c"}
    for key in "abcd":
        driver.start(key, lane=1)
    assert driver.end("a") == [
        ["ended", "a"],
        ["refused", "b", "not_found"],
        ["refused", "c", "not_found"],
        ["started", "d"],
    ]


def test_a_member_of_a_gang_runs_when_it_is_told_to_go_and_not_before():
    driver = Driver()
    assert driver.start("a", lane=1, held=True) == [["ready", "a"]]
    assert driver.start("b", lane=1) == []
    assert driver.wait(60.0) == []
    assert driver.ask("go", "a") == [["started", "a"]]
    assert driver.ask("go", "a") == driver.ask("go", "b") == []


def test_a_second_start_of_a_member_tells_again_or_lets_it_go():
    driver = Driver()
    driver.start("a", held=True)
    assert driver.start("a", held=True) == [["ready", "a"]]
    assert driver.start("a") == [["started", "a"]]


def test_a_member_that_takes_time_to_get_ready_may_be_stopped_meanwhile():
    driver = Driver()
    driver.slow = {"a"}
    assert driver.start("a", lane=1, held=True) == driver.start("a", lane=1, held=True) == []
    driver.start("b", lane=1)
    assert driver.ask("list")[0][1] == [["a", "waiting", 0, 0.0, None], ["b", "waiting", 0, 0.0, None]]
    assert driver.ask("stop", "a", 5.0) == [["refused", "a", "stopped"], ["started", "b"]]
    assert driver.do(driver.table.prepared("a")) == []


def test_what_a_later_runner_has_to_know_comes_back_with_the_listing():
    driver = Driver()
    driver.slow = {"c"}
    driver.start("a", lane=1, memo="of a")
    driver.start("b", lane=1, memo="of b")
    driver.start("c", lane=2, held=True, memo="of c")
    rows = {row[0]: row[6] for row in driver.ask("list")[0][1]}
    assert rows == {"a": "of a", "b": "of b", "c": "of c"}


def test_what_was_stopped_never_starts_not_even_under_the_next_keeper():
    driver = Driver()
    assert driver.ask("stop", "a", 5.0) == [["refused", "a", "stopped"]]
    assert driver.start("a") == [["refused", "a", "stopped"]]
    assert driver.journal == [["stopped", "a"]]
    assert Driver(KeeperTable((), driver.table.stopped)).start("a") == [["refused", "a", "stopped"]]


def test_the_keys_that_never_start_are_the_newest_ones():
    driver = Driver()
    for number in range(STOPPED_MAX + 5):
        driver.ask("stop", f"k{number}", 0.0)
    assert (len(driver.table.stopped), "k4" in driver.table.stopped) == (STOPPED_MAX, False)


def test_a_stop_is_polite_then_not_and_a_second_one_only_shortens_the_grace():
    driver = Driver()
    driver.start("a")
    driver.ask("stop", "a", 5.0)
    driver.ask("stop", "a", 2.0)
    driver.ask("stop", "a", 30.0)
    driver.wait(1.9)
    assert driver.signals == [("a", (TERM, CONT))]
    driver.wait(0.2)
    assert driver.signals[1:] == [("a", (KILL,))]
    driver.wait(AGAIN_S)
    assert driver.signals[2:] == [("a", (KILL,))]
    driver.end("a")
    driver.wait(10.0)
    assert len(driver.signals) == 3


def test_a_paused_attempt_that_is_stopped_cannot_be_paused_again():
    driver = Driver()
    driver.start("a")
    driver.ask("pause", "a")
    driver.ask("resume", "a")
    driver.ask("stop", "a", 5.0)
    driver.ask("pause", "a")
    assert driver.signals == [("a", (STOP,)), ("a", (CONT,)), ("a", (TERM, CONT))]


def test_only_what_waits_for_its_lane_and_is_no_member_is_taken_back():
    driver = Driver()
    for key, held in (("a", False), ("b", False), ("c", True)):
        driver.start(key, lane=1, held=held)
    assert driver.ask("retract", "a") == driver.ask("retract", "c") == []
    assert driver.ask("retract", "b") == [["refused", "b", "retracted"]]


def test_when_the_lease_is_over_what_runs_is_stopped_and_nothing_starts():
    driver = Driver()
    driver.slow = {"d"}
    driver.ask("lease", 10.0)
    driver.start("a", lane=1)
    driver.start("b", lane=1)
    driver.start("c", held=True)
    driver.start("d", held=True)
    driver.wait(9.9)
    assert driver.signals == []
    assert driver.wait(0.2) == [["refused", "c", "fenced"], ["refused", "d", "fenced"]]
    assert driver.signals == [("a", (TERM, CONT))]
    driver.wait(FENCE_GRACE_S)
    assert driver.signals[1:] == [("a", (KILL,))]
    assert driver.end("a") == [["ended", "a"], ["refused", "b", "fenced"]]
    assert '"reason":"fenced"' in (driver.table.attempts["a"].exit or "")
    assert driver.start("e") == [["refused", "e", "fenced"]]
    driver.ask("lease", 10.0)
    assert driver.start("f") == [["started", "f"]]


def test_a_lease_told_late_ends_at_its_instant():
    driver = Driver()
    driver.start("a")
    driver.ask("lease", 10.0, driver.now + 1.0)
    driver.wait(1.5)
    assert driver.signals == [("a", (TERM, CONT))]


def test_no_lease_is_longer_than_a_runner_can_need():
    for seconds in (1e9, float("inf"), float("nan")):
        driver = Driver()
        driver.ask("lease", seconds, seconds)
        assert driver.table.lease_until == driver.now + LEASE_S_MAX


def test_without_any_lease_nothing_is_fenced():
    driver = Driver()
    driver.start("a")
    assert (driver.wait(1e6), driver.signals) == ([], [])


def test_only_what_is_over_can_be_forgotten():
    driver = Driver()
    driver.start("a")
    driver.start("b")
    driver.end("a")
    driver.ask("forget", ["a", "b", "never"])
    assert [*driver.table.attempts] == ["b"]
    assert driver.journal[-1] == ["forget", ["a"]]


def test_a_shutdown_stops_everything_and_starts_nothing():
    driver = Driver()
    driver.start("a", lane=1)
    driver.start("b", lane=1)
    driver.start("c", held=True)
    assert driver.ask("shutdown", 3.0) == [["refused", "b", "stopped"], ["refused", "c", "stopped"]]
    assert driver.signals == [("a", (TERM, CONT))]
    assert driver.start("d") == [["refused", "d", "stopped"]]
    driver.end("a")
    assert '"reason":"shutdown"' in (driver.table.attempts["a"].exit or "")


def test_what_cannot_be_read_is_answered_and_changes_nothing():
    driver = Driver()
    driver.start("a", lane=1)
    for request in (
        ["start", "b"],
        ["start", "b", ["no"], {"lane": 1}],
        ["fly"],
        [],
        7,
        ["signal", "a", 999],
    ):
        assert [line[0] for line in driver.do(driver.table.serve(request, driver.now))] == ["misunderstood"]
    assert driver.end("a") == [["ended", "a"]]
    assert driver.start("c", lane=1) == [["started", "c"]]


def test_an_attempt_whose_brief_is_not_known_is_refused():
    driver = Driver()
    driver.ask("forget_brief", "b")
    assert driver.start("a") == [["refused", "a", "no_brief"]]


def test_what_a_runner_that_has_gone_asked_for_is_done_and_what_it_asked_is_not_answered():
    requests = [["stop", "a", 1.0], ["list"], ["ping"], [], 7, ["go", "b"]]
    assert without_questions(requests) == [["stop", "a", 1.0], [], 7, ["go", "b"]]


def test_a_ping_is_answered():
    assert Driver().ask("ping") == [["pong"]]


def test_nothing_starts_after_its_instant_however_long_it_was_on_its_way_or_in_its_lane():
    driver = Driver()
    assert driver.start("a", not_after=99.0) == [["refused", "a", "late"]]
    driver.start("b", lane=1, not_after=130.0)
    driver.start("c", lane=1, not_after=130.0)
    driver.start("d", lane=1, not_after=200.0)
    driver.wait(40.0)
    assert driver.end("b") == [["ended", "b"], ["refused", "c", "late"], ["started", "d"]]


def test_one_at_the_barrier_waits_as_long_as_it_must_and_goes_in_time_or_not_at_all():
    driver = Driver()
    driver.start("a", held=True, not_after=110.0)
    driver.start("b", held=True, not_after=110.0)
    driver.wait(60.0)
    assert driver.ask("go", "a", 150.0) == [["refused", "a", "late"]]
    assert driver.ask("go", "b", 170.0) == [["started", "b"]]


def an_attached(driver: Driver, size: int = 0) -> KeptAttempt:
    """One whose logs may have 400 bytes, and has written so much."""
    driver.start("a", attached=True, log_max_bytes=400)
    attempt = driver.table.running["a"]
    wrote(driver, attempt, size)
    return attempt


def wrote(driver: Driver, attempt: KeptAttempt, size: int) -> list[list[Any]]:
    attempt.sizes = (size,)
    return driver.do(driver.table.log_grew(attempt, driver.now))


def test_an_attached_attempt_is_stopped_at_half_a_log_unread_and_goes_on_at_a_quarter():
    driver = Driver()
    attempt = an_attached(driver, 200)
    assert driver.signals == []
    assert wrote(driver, attempt, 201) == [["unread", "a", True]]
    assert driver.ask("reader", "a", 0, 100, 90.0) == []
    assert driver.ask("reader", "a", 0, 101, 90.0) == [["unread", "a", False]]
    assert driver.signals == [("a", (STOP,)), ("a", (CONT,))]


def test_it_goes_on_when_its_reader_is_gone_and_is_stopped_again_if_one_comes_back():
    driver = Driver()
    attempt = an_attached(driver)
    driver.ask("reader", "a", 0, 0, 90.0)
    wrote(driver, attempt, 300)
    driver.wait(60.0)
    driver.ask("reader", "a", 0, None, 90.0)  # it says that it is there
    assert driver.wait(89.0) == []
    assert driver.wait(1.5) == [["unread", "a", False]]
    assert attempt.readers is not None and attempt.readers[0].until is None
    assert wrote(driver, attempt, 9000) == []
    assert driver.ask("reader", "a", 0, 10, 90.0) == [["unread", "a", True]]


def test_before_its_first_reader_comes_an_attached_attempt_waits_for_a_minute():
    driver = Driver(KeeperTable())
    driver.now = 0.0
    attempt = an_attached(driver)
    assert wrote(driver, attempt, 300) == [["unread", "a", True]]
    assert driver.wait(61.0) == [["unread", "a", False]]


def test_who_pauses_and_resumes_does_not_let_an_unread_one_go_on():
    driver = Driver()
    an_attached(driver, 300)
    driver.ask("pause", "a")
    driver.ask("resume", "a")
    assert driver.signals == [("a", (STOP,))]
    driver.ask("pause", "a")
    driver.ask("reader", "a", 0, 300, 90.0)
    assert driver.signals == [("a", (STOP,))]
    driver.ask("resume", "a")
    assert driver.signals[1:] == [("a", (CONT,))]


def test_an_unread_one_is_told_to_the_next_runner_and_can_be_stopped():
    driver = Driver()
    an_attached(driver, 300)
    assert driver.ask("list")[-1] == ["unread", "a", True]
    assert driver.ask("stop", "a", 5.0) == [["unread", "a", False]]
    assert driver.signals[1:] == [("a", (TERM, CONT))]
    assert driver.ask("list")[-1][0] == "listing"
    assert driver.ask("reader", "a", 0, 0, 90.0) == []


def test_readers_of_others_and_of_logs_that_are_not_there_change_nothing():
    driver = Driver()
    driver.start("b", log_max_bytes=400)
    an_attached(driver)
    for request in (("b", 0, 0, 9.0), ("a", 1, 0, 9.0), ("a", -1, 0, 9.0), ("c", 0, 0, 9.0)):
        assert driver.ask("reader", *request) == []


def test_where_standard_input_is_written_is_told_at_the_start_and_after_a_listing():
    driver = Driver()
    driver.table.pid = 77
    assert driver.start("a/0/1", input=True)[-1] == ["input", "a/0/1", 77]
    assert driver.start("b/0/1") == [["started", "b/0/1"]]
    assert [line for line in driver.ask("list") if line[0] == "input"] == [["input", "a/0/1", 77]]
    attempt = driver.table.attempts["a/0/1"]
    assert driver.table.serve(["end_input", "a/0/1"], driver.now) == []  # there is none open
    attempt.input = 5, 9
    assert attempt.input_line(77) == '["input","a/0/1",77,5,9]'
    (effect,) = driver.table.serve(["end_input", "a/0/1"], driver.now)
    assert isinstance(effect, CloseInput) and effect.attempt is attempt
