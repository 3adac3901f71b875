"""The reader of workload logs and the replay through the engine, on logs of a few lines."""

from __future__ import annotations

import pytest

from bench.backfill import MODES, replay
from bench.swf import Logged, read

LOG = """\
; Version: 2.2
; MaxNodes: 64
; MaxProcs:  4
;
    1     0   0   100   2     -1    -1   2   120    -1  1   3  74 12894  4 -1 -1 -1
    2    10   0   100   4     -1    -1   4   100    -1  1   3  74 12894  4 -1 -1 -1
    3    20   0    -1   4     -1    -1   4   100    -1  5   3  74 12894  4 -1 -1 -1

    4    30   0    50   2     -1    -1   2    20    -1  1   3  74 12894  4 -1 -1 -1
    5    40   0    60   1     -1    -1  -1    80    -1  1   3  74 12894  4 -1 -1 -1
"""


def test_jobs_that_ran_are_read_in_order_of_arrival() -> None:
    log = read(LOG.splitlines())
    assert [job.number for job in log.jobs] == [1, 2, 4, 5]
    assert log.jobs[0] == Logged(1, submitted_at=0.0, run_s=100.0, estimate_s=120.0, procs=2)


def test_the_header_says_how_many_processors_there_are() -> None:
    assert read(LOG.splitlines()).procs == 4
    assert read([";  MaxNodes: 64"]).procs == 64
    assert read([]).procs == 0


def test_an_estimate_is_never_below_the_run_and_processors_are_those_asked_for_if_known() -> None:
    _, _, fourth, fifth = read(LOG.splitlines()).jobs
    assert fourth.estimate_s == 50.0
    assert fifth.procs == 1


@pytest.mark.parametrize("line", ["1 2 3", "1 0 0 x 2 -1 -1 2 120"])
def test_a_line_that_is_no_job_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read([line])


@pytest.mark.parametrize("gangs", [False, True])
def test_a_replay_gives_the_waits_that_one_works_out_on_paper(gangs: bool) -> None:
    log = read(LOG.splitlines())
    waits = {mode: replay(log, mode, log.procs, gangs=gangs).wait_s * 4 for mode in MODES}
    # First come: 2 starts at 100, 4 and 5 at 200. Backfilled: 4 fits until 100 by estimate (30 + 50), then 5 waits
    # until 80; it would end at 160 by estimate and at 140 in fact, both too late for 2, so it starts with 2's end.
    assert waits == {"fcfs": 90 + 170 + 160, "easy": 90 + 0 + 160, "exact": 90 + 0 + 160}


def test_the_slowdown_of_short_jobs_is_bounded() -> None:
    lines = ["1 0 0 10 4 -1 -1 4 10", "2 0 0 1 4 -1 -1 4 1"]
    outcome = replay(read(lines), "fcfs", 4)
    assert outcome.slowdown == pytest.approx((1.0 + 11.0 / 10.0) / 2)
