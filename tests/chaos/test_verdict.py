"""The verdict can fail: for every promise, a ledger that breaks it, and one that does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.answers import Job, Task
from tests.chaos.evidence import Evidence
from tests.chaos.faults import OUT_OF_TOUCH, UNFENCED, Fault
from tests.chaos.leaders import Yes, led, rivals, vacancies
from tests.chaos.ledger import Life, read_lives
from tests.chaos.verdict import excused_twins, violations
from tests.chaos.workload import Asked, Wait


def a_life(key: str = "j/0/1", node: str = "n1", code: int | None = 0, **changes: object) -> Life:
    life = Life(key, node, (0,), 1, "", 1, started_at=10.0, ended_at=11.0, code=code, born_at=9.9)
    return replace(life, **changes)  # type: ignore[arg-type]


def a_task(status: str = "Completed", code: int | None = 0, attempt: int = 1, **changes: object) -> Task:
    reason = {"Completed": "", "Failed": "exited"}.get(status, status.lower())
    task = Task(0, status, reason, code, attempt, [attempt] if status == "Completed" else [], [attempt])
    task.started_at, task.ended_at = 10.0, 11.0
    return replace(task, **changes)  # type: ignore[arg-type]


def evidence(lives: list[Life], tasks: list[Task], asked: Asked | None = None, **more: object) -> Evidence:
    asked = asked or Asked("u0-1", "single", len(tasks), (0,), job="j")
    jobs = {"j": Job("j", asked.request, "Completed", {task.position: task for task in tasks})}
    return Evidence([asked], jobs, {life.key: life for life in lives}, **more)  # type: ignore[arg-type]


def broken(found: Evidence) -> set[str]:
    return {name for name, sentences in violations(found).items() if sentences}


def a_gang(started: int, members: int = 3, released_at: float = 9.0, **more: object) -> Evidence:
    """A gang of which so many members ran."""
    lives = [a_life(f"j/{at}/1", f"n{at + 1}", formation="j.1") for at in range(started)]
    tasks = [a_task(position=at) for at in range(members)]
    found = evidence(lives, tasks, Asked("u0-1", "gang", members, (0,), job="j"), **more)
    found.jobs["j"].released_at = {1: released_at}
    found.jobs["j"].stood = {1: {"n1", "n2", "n3"}}
    return found


def test_a_run_without_fault_breaks_nothing():
    assert broken(evidence([a_life()], [a_task()])) == set()


def test_a_task_that_never_ends_is_lost():
    assert "lost tasks" in broken(evidence([a_life(code=None)], [a_task("Running", None)]))


def test_an_accepted_job_that_nobody_knows_is_lost():
    found = evidence([a_life()], [a_task()])
    found.jobs.clear()
    assert "lost tasks" in broken(found)


def test_one_request_that_became_two_jobs_is_seen():
    assert broken(evidence([a_life()], [a_task()], names={"u0-1": ["j", "k"]})) == {"accepted twice"}


def test_a_job_that_ran_unasked_is_seen():
    assert broken(evidence([a_life(), a_life("k/0/1")], [a_task()])) == {"accepted twice"}


def test_two_attempts_that_both_completed_are_a_double_commit():
    task = a_task(attempt=2, completed=[1, 2], ended=[1, 2])
    assert broken(evidence([a_life(), a_life("j/0/2")], [task])) == {"double commits"}


def test_an_attempt_that_ended_twice_is_a_double_commit():
    assert broken(evidence([a_life()], [a_task(ended=[1, 1])])) == {"double commits"}


def test_a_clash_over_a_device_is_a_double_allocation():
    life = a_life(clashes=["device 0 is held by k/0/1"])
    assert broken(evidence([life], [a_task()])) == {"double allocations"}


def test_an_attempt_with_two_processes_is_a_double_allocation():
    assert broken(evidence([a_life(starts=2)], [a_task()])) == {"double allocations"}


def two_lives(*faults: Fault, second_at: float = 30.0) -> Evidence:
    """A second attempt that began while the first lived on n1."""
    lives = [
        a_life("j/0/1", "n1", code=None, ended_at=None),
        a_life(
            "j/0/2", "n2", twins=["j/0/1"], started_at=second_at, born_at=second_at, ended_at=second_at + 1
        ),
    ]
    task = a_task(attempt=2, started_at=second_at, ended_at=second_at + 1)
    return evidence(lives, [task], faults=[*faults])


@pytest.mark.parametrize("kind", [*OUT_OF_TOUCH, "keeper paused for long", "keeper killed", "node crashed"])
def test_two_live_attempts_are_a_violation_whoever_was_stopped_or_killed_beside_the_watchdog(kind: str):
    assert broken(two_lives()) == {"two live attempts"}
    assert broken(two_lives(Fault(kind, ("n1",), 12.0, 20.0, 32.0))) == {"two live attempts"}


@pytest.mark.parametrize("kind", UNFENCED)
def test_two_live_attempts_are_admitted_where_nobody_is_left_to_end_the_first(kind: str):
    found = two_lives(Fault(kind, ("n1",), 12.0, 20.0, 32.0))
    assert broken(found) == set()
    assert len(excused_twins(found)) == 1
    assert broken(two_lives(Fault(kind, ("n1",), 12.0, 14.0, 26.0))) == set(), "it woke within a lease"


@pytest.mark.parametrize("kind", UNFENCED)
@pytest.mark.parametrize(
    ("victim", "began_at", "ended_at", "why_not"),
    [
        ("n2", 12.0, 32.0, "the node of the second was stopped, not that of the first"),
        ("n1", 12.0, 15.0, "too short to be lost"),
        ("n1", 27.0, 40.0, "the second began before the node was lost"),
        ("n1", 10.0, 20.0, "it had been awake for longer than its lease"),
    ],
)
def test_nothing_more_than_that_is_admitted(
    kind: str, victim: str, began_at: float, ended_at: float, why_not: str
):
    found = two_lives(Fault(kind, (victim,), began_at, ended_at - began_at, ended_at))
    assert broken(found) == {"two live attempts"}, why_not


@pytest.mark.parametrize(
    ("cut", "victim", "cut_at", "is_admitted"),
    [
        ("coordinator cut from runners", "c1", 21.0, True),
        ("node mute", "n1", 21.0, True),
        ("node mute", "n2", 21.0, False),
        ("keeper killed", "n1", 21.0, False),
        ("coordinator cut from runners", "c1", 2.0, False),
    ],
    ids=[
        "the leader was cut off before",
        "the node was",
        "another was",
        "no cut",
        "its lease was over before",
    ],
)
def test_a_machine_that_stops_when_it_was_cut_off_already_is_lost_the_sooner(
    cut: str, victim: str, cut_at: float, is_admitted: bool
):
    found = two_lives(
        Fault(cut, (victim,), cut_at, 30.0 - cut_at, 30.0), Fault("machine stopped", ("n1",), 25.0, 7.0, 32.0)
    )
    assert (broken(found) == set()) is is_admitted


@pytest.mark.parametrize("kind", OUT_OF_TOUCH)
def test_a_task_that_outlives_the_lease_of_a_node_out_of_touch_is_seen(kind: str):
    def ended(at: float, fault_ends_at: float = 40.0) -> set[str]:
        life = a_life(code=None, ended_at=at)
        task = a_task("Failed", None, reason="lost")
        asked = Asked("u0-1", "single", 1, (0,), job="j", is_cancelled=True)
        return broken(
            evidence([life], [task], asked, faults=[Fault(kind, ("n1",), 12.0, 28.0, fault_ends_at)])
        )

    assert ended(20.9) == set(), "within 9 s"
    assert ended(22.0) == {"outlived leases"}
    assert ended(22.0, fault_ends_at=20.0) == set(), "it was back in time"


def test_a_task_that_nobody_ended_is_seen_by_what_it_wrote_while_it_lived():
    life = replace(a_life(code=None, ended_at=None), seen_at=22.0)
    asked = Asked("u0-1", "single", 1, (0,), job="j", is_cancelled=True)
    fault = Fault("node abandoned", ("n1",), 12.0, 28.0, 40.0)
    found = evidence([life], [a_task("Failed", None, reason="lost")], asked, faults=[fault])
    assert broken(found) == {"outlived leases"}


def test_a_kind_of_fault_that_never_found_its_victim_is_seen():
    def idle(*each: bool) -> set[str]:
        faults = [Fault("keeper killed", ("n1",), 50.0, 1.0, 51.0, is_idle) for is_idle in each]
        return broken(evidence([a_life()], [a_task()], faults=faults))

    assert idle(True, True) == {"idle faults"}
    assert idle(True, False) == set()


def test_slow_visitors_who_never_came_are_seen():
    found = evidence([a_life()], [a_task()])
    assert broken(replace(found, slow={"halves": 3, "watches": 1})) == set()
    assert broken(replace(found, slow={"halves": 3, "watches": 0})) == {"idle faults"}


def limited(lived_s: float, limit_s: float, reason: str = "timeout", *faults: Fault) -> set[str]:
    """A task with a limit that lived for so long."""
    life = a_life(code=None if reason else 0, ended_at=10.0 + lived_s, born_at=10.0)
    task = a_task("Failed", 143, reason=reason) if reason else a_task()
    runs_s = 90.0 if reason else 1.0
    asked = Asked("u0-1", "single", 1, (0,), job="j", limit_s=limit_s, runs_s=runs_s)
    return broken(evidence([life], [replace(task, ended_at=10.0 + lived_s)], asked, faults=[*faults]))


def test_a_time_limit_that_came_early_or_late_is_seen():
    assert limited(3.1, limit_s=3.0) == set()
    assert limited(0.5, limit_s=3.0) == {"wrong time limits"}
    assert limited(12.0, limit_s=3.0) == {"wrong time limits"}
    assert limited(12.0, 3.0, "timeout", Fault("clock set back", ("n1",), 11.0, 30.0, 41.0)) == {
        "wrong time limits"
    }, "a clock that was set excuses nothing"


def test_a_limit_is_late_while_nobody_on_the_node_can_see_to_it():
    assert limited(12.0, 3.0, "timeout", Fault("runner paused", ("n1",), 11.0, 9.0, 20.0)) == set()
    assert limited(12.0, 3.0, "timeout", Fault("runner paused", ("n2",), 11.0, 9.0, 20.0)) != set()
    assert "wrong time limits" in limited(
        40.0, 3.0, "timeout", Fault("runner paused", ("n1",), 11.0, 9.0, 20.0)
    )


def test_a_timeout_of_a_task_without_a_limit_or_with_an_ample_one_is_seen():
    life, task = a_life(code=None), a_task("Failed", 143, reason="timeout")
    assert broken(evidence([life], [task])) == {"wrong time limits", "false exit codes"}
    ample = Asked("u0-1", "single", 1, (0,), job="j", limit_s=3600.0, runs_s=1.0)
    assert broken(evidence([life], [task], ample)) == {"wrong time limits", "false exit codes"}


def test_a_task_that_completed_though_its_limit_is_shorter_is_seen():
    asked = Asked("u0-1", "single", 1, (0,), job="j", limit_s=3.0, runs_s=90.0)
    found = evidence([a_life(ended_at=100.0)], [a_task(ended_at=100.0)], asked)
    assert broken(found) == {"wrong time limits", "false exit codes"}


def test_times_that_are_not_true_are_seen():
    assert broken(evidence([a_life()], [a_task(started_at=11.5, ended_at=11.0)])) == {"untrue times"}
    assert broken(evidence([a_life()], [a_task(ended_at=15.0)])) == {"untrue times"}
    assert broken(evidence([a_life()], [a_task(started_at=None)])) == {"untrue times"}
    assert broken(evidence([a_life()], [a_task(started_at=3610.0, ended_at=3611.0)])) == {"untrue times"}
    offset = evidence([a_life()], [a_task(started_at=3610.0, ended_at=3611.0)], wall_offset_s=3600.0)
    assert broken(offset) == set()


def test_times_of_a_node_whose_clock_was_set_are_its_own_but_no_end_is_before_its_beginning():
    fault = Fault("clock set ahead", ("n1",), 5.0, 20.0, 25.0)
    ahead = a_task(started_at=18010.0, ended_at=18011.0)
    assert broken(evidence([a_life()], [ahead], faults=[fault])) == set()
    backwards = a_task(started_at=18010.0, ended_at=11.0)
    assert broken(evidence([a_life()], [backwards], faults=[fault])) == {"untrue times"}


def test_a_request_that_waits_while_somebody_leads_is_starved():
    def waited(*spans: tuple[float, float]) -> set[str]:
        waits = [Wait("u1", "submit", 100.0, 130.0)]
        return broken(evidence([a_life()], [a_task()], waits=waits, led=[*spans]))

    assert waited((0.0, 105.0), (126.0, 200.0)) == set(), "9 s with a leader"
    assert waited((0.0, 105.0), (124.0, 200.0)) == {"starved requests"}


def test_a_leader_is_there_while_its_answers_are_close_to_each_other():
    times = (10.0, 10.4, 10.8, 14.0, 14.3)
    assert led([Yes("c1", 1, at - 0.1, at) for at in times]) == [(10.0, 10.8), (14.0, 14.3)]


def test_a_request_that_is_allowed_and_was_refused_is_seen():
    found = evidence([a_life()], [a_task()], refusals=["a list of u1 was refused: Unauthorized"])
    assert broken(found) == {"refused requests"}


def test_a_job_that_another_user_cancelled_is_seen():
    found = evidence([a_life()], [a_task()], trespasses=["u1 cancelled j, which is another's"])
    assert broken(found) == {"cancelled by others"}


@pytest.mark.parametrize(
    ("task", "life"),
    [
        (a_task("Completed", 0), a_life(code=3)),  # it failed, and is reported as completed
        (a_task("Failed", 4), a_life(code=3)),  # another code
        (a_task("Failed", 3), a_life(code=3)),  # true, but it was meant to succeed
        (a_task("Completed", 0, attempt=2), a_life(code=0)),  # an attempt that never ran
        (a_task("Cancelled", None), a_life()),  # it was not cancelled
        (a_task("Failed", -1, reason="lost"), a_life()),  # no fault of ours counts against it
    ],
)
def test_an_end_that_is_not_true_is_seen(task: Task, life: Life):
    assert "false exit codes" in broken(evidence([life], [task]))


def test_a_true_failure_is_no_violation():
    asked = Asked("u0-1", "single", 1, (3,), job="j")
    assert broken(evidence([a_life(code=3)], [a_task("Failed", 3)], asked)) == set()


def test_what_was_said_to_be_cancelled_stays_so():
    asked = Asked("u0-1", "single", 1, (0,), job="j", is_cancelled=True, cancelled=1)
    assert broken(evidence([a_life()], [a_task()], asked)) == {"false exit codes"}


def test_a_gang_that_started_in_part_is_seen_unless_a_node_was_harmed():
    assert "half-started gangs" in broken(a_gang(started=2))
    harmed = a_gang(started=2, faults=[Fault("node crashed", ("n3",), 9.5, 1.0, 10.5)])
    assert "half-started gangs" not in broken(harmed)
    elsewhere = a_gang(started=2, faults=[Fault("node crashed", ("n8",), 9.5, 1.0, 10.5)])
    assert "half-started gangs" in broken(elsewhere)


def test_a_member_that_ran_before_all_were_ready_is_seen():
    assert "half-started gangs" in broken(a_gang(started=3, released_at=12.0))
    assert "half-started gangs" not in broken(a_gang(started=3))


def test_leaks_and_a_cluster_that_does_not_heal_are_seen():
    assert broken(evidence([a_life()], [a_task()], leaks=["n1: 3 of 4 cores free"])) == {"leaks"}
    assert broken(evidence([a_life()], [a_task()], healed_s=None)) == {"not healed"}
    assert broken(evidence([a_life()], [a_task()], healed_s=61.0)) == {"not healed"}


def test_a_damaged_store_is_seen():
    assert broken(evidence([a_life()], [a_task()], damages=["record 7 cannot be read"])) == {"damaged store"}


def test_a_leader_that_was_asked_after_its_successor_answered_is_a_rival():
    old, new = Yes("c1", 3, 10.0, 10.1), Yes("c2", 4, 14.0, 14.1)
    assert rivals([old, new]) == []
    assert rivals([old, new, Yes("c1", 3, 14.05, 14.2)]) == []  # it was asked before the other was known
    assert len(rivals([old, new, Yes("c1", 3, 14.15, 14.2)])) == 1
    assert len(rivals([old, replace(new, epoch=3)])) == 1


def test_vacancies_are_counted_between_epochs():
    answers = [Yes("c1", 3, 10.0, 10.1), Yes("c1", 3, 11.0, 11.1), Yes("c2", 5, 14.0, 14.1)]
    assert vacancies(answers) == [pytest.approx(3.0)]


def test_lives_are_read_from_what_tasks_wrote(tmp_path: Path):
    rows = [
        ("start", 1.0, "j/0/1", "n1", "0,2", 2, "j.1", 7, "4711 0.95"),
        ("clash", 1.1, "j/0/1", "n1", "0,2", 2, "j.1", 7, "device 2 is held by k/0/1"),
        ("twin", 1.1, "j/0/1", "n1", "0,2", 2, "j.1", 7, "j/0/0"),
        ("end", 2.5, "j/0/1", "n1", "0,2", 2, "j.1", 7, 3),
        ("start", 3.0, "j/0/2", "n2", "", 1, "", 7, "4712 2.9"),
        ("stopped", 4.0, "j/0/2", "n2", "", 1, "", 7, 15),
    ]
    path = tmp_path / "lives"
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    first, second = read_lives(path).values()
    assert (first.devices, first.code, first.ended_at, first.formation) == ((0, 2), 3, 2.5, "j.1")
    assert (first.born_at, second.born_at) == (0.95, 2.9)
    assert (first.clashes, first.twins) == (["device 2 is held by k/0/1"], ["j/0/0"])
    assert (second.devices, second.code, second.ended_at) == ((), None, 4.0)
