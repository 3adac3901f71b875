"""Compares what tasks recorded themselves with what the API reports, while parts are killed with -9 (R31).

Every attempt appends its start, its end and the code it is about to exit with to a file; the verdict compares each
line with the task's view and with the story. `python -m tests.e2e.truth` is the long form.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from phalanx.api.schema.jobs import StoryLine, TaskView
from phalanx.errors import PhalanxError
from phalanx.runner.keeper.lookup import is_keeper
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import pause, wait_until

NODES = {"n1": "cpus=8,ram=8GiB", "n2": "cpus=8,ram=8GiB"}
# A task's code follows from its number and its attempt. One that is stopped records that, and ends by that signal.
# With a second word members of a gang fail in turn, so that one that failed by itself before is stopped when its job
# fails.
TASK = """
say() { echo "$1 $PHALANX_TASK_ID $PHALANX_ATTEMPT $(date +%s.%N) $2" >> "$0.said"; }
stopped() { say end -15; trap - TERM; kill -TERM $$; }
trap stopped TERM
say start
pause="0.$(( (PHALANX_ATTEMPT * 7 + $1 * 3 + PHALANX_RANK * 2) % 9 ))"
if [ -n "$2" ] && [ $(( (PHALANX_ATTEMPT + PHALANX_RANK) % 2 )) -eq 1 ]; then pause=5; fi
sleep $pause & wait $!
code=0
if [ "$PHALANX_ATTEMPT" -le "$(( $1 % 4 ))" ]; then code=$(( 3 + ($1 + PHALANX_ATTEMPT) % 5 )); fi
trap "" TERM
say end $code
exit $code
"""
UNSEEN = ("lost", "unknown", "fenced", "unconfirmed", "evicted")  # ends whose exit code was not seen
EARLY_S, LATE_S = (
    0.05,
    20.0,
)  # a process says nothing before it is started; how late it may, on a machine under load
_EXITED = re.compile(r"attempt (\d+) (?:(?:ended: )?exited with code (\d+)|(completed))")


class Said(Struct):
    """What one attempt recorded."""

    started: float
    ended: float | None = None
    code: int | None = None


class Verdict(Struct):
    """How many attempts ran and were compared, and what was not true."""

    attempts: int = 0
    compared: Counter[str] = Counter()
    untrue: list[str] = []


def run(folder: Path, attempts: int, seed: int = 1, pause_s: float = 1.0) -> Verdict:
    """Submit work until so many attempts have run, kill parts meanwhile, let it end, and compare."""
    dice = random.Random(seed)
    script = folder / "task.sh"
    script.write_text(TASK)
    with a_real_cluster(folder / "c", NODES, heartbeat_s=0.5, lost_after_s=6.0) as cluster:
        jobs = [_submit_in_turn(cluster, script, number) for number in range(3)]
        kill_at = time.monotonic() + pause_s
        while len(heard(script)) < attempts:
            if sum(_counts(cluster, id)[0] for id in jobs[-6:]) < 20:
                jobs.append(_submit(cluster, script, dice))
            if time.monotonic() > kill_at and _is_well(
                cluster
            ):  # or a slow machine would do nothing but restart
                _harm(cluster, dice)
                kill_at = time.monotonic() + dice.uniform(0.5, 1.5) * pause_s
            pause(0.05)
        for id in jobs:
            wait_until(lambda id=id: _counts(cluster, id)[1] or None, 90.0, f"{id} is over")  # type: ignore[misc]
        return judge(cluster, jobs, heard(script))


def heard(script: Path) -> dict[tuple[str, int], Said]:
    """Everything that attempts recorded, by task and number."""
    found: dict[tuple[str, int], Said] = {}
    path = script.with_name(f"{script.name}.said")
    for line in path.read_text().splitlines() if path.exists() else ():
        what, task, number, *more = line.split()
        if len(more) < (1 if what == "start" else 2):
            continue  # it was killed while it asked for the time
        if what == "start":
            found[task, int(number)] = Said(float(more[0]))
        elif (said := found.get((task, int(number)))) is not None:
            said.ended, said.code = float(more[0]), int(more[1])
    return found


def judge(cluster: RealCluster, jobs: list[str], said: dict[tuple[str, int], Said]) -> Verdict:
    verdict = Verdict(len(said), Counter(), [])
    for id in jobs:
        for task in cluster.client.tasks(id, limit=1000).items:
            verdict.untrue += _of_view(task, said, verdict.compared)
        for line in _story(cluster, id):
            verdict.untrue += _of_line(id, line, said, verdict.compared)
    return verdict


def _of_view(task: TaskView, said: dict[tuple[str, int], Said], compared: Counter[str]) -> list[str]:
    """What is shown of a task is what its last attempt recorded."""
    who = f"{task.id} attempt {task.attempt}: {task.status}, code {task.exit_code}, {task.message!r}"
    if task.started_at and task.ended_at and task.ended_at < task.started_at:
        return [f"{who} ended before it started"]
    if (mine := said.get((task.id, task.attempt))) is None:
        is_claimed = task.status == "Completed" or (task.exit_code or 0) > 0
        return [f"{who}, and it never said that it ran"] if is_claimed else []
    unseen = task.reason in UNSEEN or (task.reason == "job_failed" and task.exit_code in (None, -1, -9))
    if mine.code is None:
        return [] if task.exit_code in (None, -1, -9, -15) else [f"{who}, and it never said how it ended"]
    compared["codes of tasks"] += 1
    if task.exit_code != mine.code and not unseen:
        return [f"{who}, and it ended with {mine.code}"]
    return [] if unseen else _times(who, task, mine, compared)


def _times(who: str, task: TaskView, mine: Said, compared: Counter[str]) -> list[str]:
    if task.started_at is None or task.ended_at is None or mine.ended is None:
        return [f"{who} has no times"]
    compared["times of tasks"] += 1
    late = mine.started - task.started_at, task.ended_at - mine.ended
    return [] if all(-EARLY_S <= each <= LATE_S for each in late) else [f"{who} is off by {late}"]


def _of_line(
    job: str, line: StoryLine, said: dict[tuple[str, int], Said], compared: Counter[str]
) -> list[str]:
    """A line of the story with a code has the one that the attempt recorded."""
    if line.event != "AttemptEnded" or (found := _EXITED.match(line.text)) is None:
        return []
    mine = said.get((line.task or job, int(found[1])))
    told = int(found[2] or 0)
    compared["codes in stories"] += 1
    if mine is None or mine.code != told:
        return [f"the story of {line.task} says {line.text!r}; it wrote {mine and mine.code}"]
    return []


def _submit(cluster: RealCluster, script: Path, dice: random.Random) -> str:
    argv = ["/bin/sh", str(script), str(dice.randrange(9))]
    request = f"truth-{dice.getrandbits(64):x}"
    if dice.random() < 0.5:
        reply = cluster.client.gang(
            argv, dice.choice((2, 3, 4)), max_retries=2, request_id=request, grace=1.0
        )
    else:
        array = f"1-{dice.choice((5, 10, 20))}"
        reply = cluster.client.submit(command=argv, array=array, max_retries=2, request_id=request)
    return reply.batch_id


def _submit_in_turn(cluster: RealCluster, script: Path, number: int) -> str:
    argv = ["/bin/sh", str(script), "3", "in turn"]
    request = f"truth-in-turn-{number}"
    return cluster.client.gang(argv, 2, max_retries=1, request_id=request, grace=1.0).batch_id


def _harm(cluster: RealCluster, dice: random.Random) -> None:
    """Kill one part with -9, and start it again as an init system would. A runner starts its keeper itself."""
    victim = dice.choice(["coordinator", "coordinator", "n1", "n2", "keeper n1", "keeper n2"])
    if victim.startswith("keeper"):
        folder = str(cluster.folder / victim.split()[1])
        for entry in Path("/proc").glob("[0-9]*"):
            if is_keeper(int(entry.name), folder):
                with suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        return
    cluster.kill(victim)
    (cluster.start_coordinator if victim == "coordinator" else cluster.start_runner)(victim)


def _is_well(cluster: RealCluster) -> bool:
    try:
        return all(node.status == "Online" for node in cluster.client.nodes())
    except PhalanxError:
        return False


def _counts(cluster: RealCluster, id: str) -> tuple[int, bool]:
    """How many tasks of a job are not over, and whether all are; unknown while no coordinator answers."""
    try:
        job = cluster.client.job(id)
        tasks = cluster.client.tasks(id, limit=1000).items
    except PhalanxError:
        return 20, False
    left = job.counts.pending + job.counts.assigned + job.counts.running
    is_still = all(task.ended_at or not task.started_at for task in tasks)
    return left, not left and is_still


def _story(cluster: RealCluster, id: str) -> list[StoryLine]:
    lines: list[StoryLine] = []
    cursor: str | None = None
    while True:
        page = cluster.client.story(id, cursor=cursor, limit=1000)
        lines += page.items
        if (cursor := page.next_cursor) is None:
            return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="phalanx-truth-") as folder:
        verdict = run(Path(folder), options.attempts, options.seed, pause_s=3.0)
    counts = [f"{count:8} {what} compared" for what, count in sorted(verdict.compared.items())]
    lines = [f"{verdict.attempts:8} attempts wrote down what they did", *counts]
    sys.stdout.write("\n".join([*lines, f"{len(verdict.untrue):8} untrue", *verdict.untrue[:20], ""]))
    return 1 if verdict.untrue else 0


if __name__ == "__main__":
    sys.exit(main())
