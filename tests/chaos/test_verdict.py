"""The verdict can fail: for every promise, a ledger that breaks it, and one that does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.faults import Fault
from tests.chaos.ledger import Life, read_lives
from tests.chaos.office import Yes, rivals, vacancies
from tests.chaos.told import Job, Task
from tests.chaos.verdict import Evidence, excused_twins, violations
from tests.chaos.workload import Asked


def a_life(key: str = "j/0/1", node: str = "n1", code: int | None = 0, **changes: object) -> Life:
    life = Life(key, node, (0,), 1, "", 1, started_at=10.0, ended_at=11.0, code=code)
    return replace(life, **changes)  # type: ignore[arg-type]


def a_task(status: str = "Completed", code: int | None = 0, attempt: int = 1, **changes: object) -> Task:
    reason = {"Completed": "", "Failed": "exited"}.get(status, status.lower())
    task = Task(0, status, reason, code, attempt, [attempt] if status == "Completed" else [], [attempt])
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


def test_two_live_attempts_are_a_violation_unless_the_keeper_was_paused():
    lives = [a_life("j/0/1", "n1", code=None), a_life("j/0/2", "n2", started_at=20.0, twins=["j/0/1"])]
    task = a_task(attempt=2)
    assert broken(evidence(lives, [task])) == {"two live attempts"}
    excused = evidence(lives, [task], faults=[Fault("keeper paused", ("n1",), 12.0, 9.0, 21.0)])
    assert broken(excused) == set()
    assert len(excused_twins(excused)) == 1


@pytest.mark.parametrize(
    ("task", "life"),
    [
        (a_task("Completed", 0), a_life(code=3)),  # it failed, and is said to have completed
        (a_task("Failed", 4), a_life(code=3)),  # another code
        (a_task("Failed", 3), a_life(code=3)),  # true, but it was meant to succeed
        (a_task("Completed", 0, attempt=2), a_life(code=0)),  # an attempt that never ran
        (a_task("Cancelled", None), a_life()),  # nobody cancelled it
        (a_task("Failed", -1, reason="lost"), a_life()),  # nothing that we did was its fault
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
        ("start", 1.0, "j/0/1", "n1", "0,2", 2, "j.1", 7, 4711),
        ("clash", 1.1, "j/0/1", "n1", "0,2", 2, "j.1", 7, "device 2 is held by k/0/1"),
        ("twin", 1.1, "j/0/1", "n1", "0,2", 2, "j.1", 7, "j/0/0"),
        ("end", 2.5, "j/0/1", "n1", "0,2", 2, "j.1", 7, 3),
        ("start", 3.0, "j/0/2", "n2", "", 1, "", 7, 4712),
        ("stopped", 4.0, "j/0/2", "n2", "", 1, "", 7, 15),
    ]
    path = tmp_path / "lives"
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    first, second = read_lives(path).values()
    assert (first.devices, first.code, first.ended_at, first.formation) == ((0, 2), 3, 2.5, "j.1")
    assert (first.clashes, first.twins) == (["device 2 is held by k/0/1"], ["j/0/0"])
    assert (second.devices, second.code, second.ended_at) == ((), None, 4.0)
