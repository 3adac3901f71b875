"""A working day of one user, on a real cluster and a terminal of 80 columns, with the commands of the guides only.

A project with a virtual environment, a sweep of 60 of which some fail, its results as a table, the failed ones run
again, a gang that preempts what runs, and the log of a crashed attempt whose node is gone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forked import run_command
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import a_terminal, command_environment
from tests.support.waiting import wait_until

COLUMNS = 80
GPUS = "cpus=16,gpus=4,type=h100,memory=80GiB,ram=64GiB"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")

TRAIN = """\
import json, os, sys
import lab  # of this project's virtual environment alone

lr, seed = float(sys.argv[1]), int(sys.argv[2])
print("training", lr, seed, flush=True)
if seed % 10 == 3 and not os.path.exists("mended"):
    raise RuntimeError(f"seed {seed} diverged")
with open(os.environ["PHALANX_RESULT"], "w") as file:
    json.dump({"loss": lab.loss(lr, seed)}, file)
"""


WAITS = ('until test -e "$0"; do sleep 0.1; done',)


class User:
    """One who has changed to the folder of a project and activated its environment."""

    def __init__(self, cluster: RealCluster, project: Path) -> None:
        self.cluster, self.project = cluster, project
        venv = project / ".venv"
        path = f"{venv / 'bin'}:{os.environ['PATH']}"
        self.environment = command_environment(cluster) | {"VIRTUAL_ENV": str(venv), "PATH": path}

    def says(self, *words: str, code: int = 0, within_s: float = 60.0) -> str:
        """What a command prints, in a pipe."""
        where = ["--address", self.cluster.address("coordinator")]
        where += ["--token-file", str(self.cluster.folder / "token")]
        done = run_command([*where, *words], self.environment, cwd=self.project, within_s=within_s)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout.decode()

    def sees(self, *words: str, code: int = 0, is_prose: bool = False) -> list[str]:
        """What a command shows on a terminal, line by line; no line is wider than that, unless it is a sentence."""
        with a_terminal(self.cluster, *words, rows=24, columns=COLUMNS) as terminal:
            assert terminal.exit_code() == code, terminal.shown
            lines = ESCAPES.sub("", terminal.shown.decode()).replace("\r", "").splitlines()
        assert is_prose or [line for line in lines if len(line) > COLUMNS] == [], lines
        return lines


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("day"), {"n1": GPUS, "n2": GPUS, "n3": GPUS}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def user(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    project = tmp_path_factory.mktemp("project")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    (packages,) = (project / ".venv/lib").glob("python3*/site-packages")
    (packages / "lab.py").write_text("def loss(lr, seed):\n    return round(lr * seed, 4)\n")
    (project / "train.py").write_text(TRAIN)
    return User(cluster, project)


def test_a_sweep_its_failures_and_their_second_try(user: User) -> None:
    sweep = user.says(
        "submit", "-n", "Sweep_1", "--param", "lr=0.1,0.01,0.001", "--param", "seed=1..20", "--retries", "0",
        "--", "python", "train.py", "{lr}", "{seed}",
    ).strip()  # fmt: skip
    user.says("wait", sweep, code=1)
    table = user.sees("results", sweep)
    assert {"lr", "seed", "loss"} <= set(re.split(r"\s+", table[0].strip().lower())), table[0]
    assert sum("Failed" in line for line in table) == 6
    log = user.says("logs", f"{sweep}.3")
    assert "RuntimeError: seed 3 diverged" in log
    assert log.index("training") < log.index("Traceback"), "one log, in the order in which it was written"
    assert len(re.findall("RuntimeError: seed", user.says("logs", "Sweep_1"))) == 6, (
        "logs of the whole job, by its name"
    )

    (user.project / "mended").touch()
    again = user.says("retry", sweep, "--failed").strip()
    user.says("wait", again)
    rows = user.says("results", sweep, "-o", "csv").splitlines()
    assert len(rows) == 61
    assert all("Completed" in row for row in rows[1:]), rows
    assert any(row.endswith(",1.3") for row in rows), "lr 0.1 and seed 13"


def test_a_gang_preempts_a_retry_and_an_attached_run_and_all_say_so(user: User) -> None:
    """Eleven failed tasks of a sweep run again, beside an attached run: every GPU is taken until the gang comes."""
    mended, go, gone = (user.project / name for name in ("able", "go", "gone"))
    waits = 'test -e "$1" || exit 3; until test -e "$2"; do sleep 0.1; done; echo attempt $PHALANX_ATTEMPT'
    command = ["sh", "-c", waits, "-", str(mended), str(go)]
    sweep = user.says(
        "submit", "-n", "low", "--param", "seed=1..11", "--gpus", "1", "--retries", "0", "--", *command
    ).strip()  # fmt: skip
    user.says("wait", sweep, code=3)
    mended.touch()
    (again,) = [line for line in user.sees("retry", sweep, "--failed") if line.isdecimal()]
    watched = "echo begun $PHALANX_ATTEMPT; " + waits
    with a_terminal(
        user.cluster, "run", "-n", "watched", "--gpus", "1", "--", "sh", "-c", watched, *command[3:], columns=COLUMNS
    ) as attached:  # fmt: skip
        attached.expect("begun 1")
        wait_until(lambda: user.cluster.client.job(again).counts.running == 11, 30.0, "all of it runs")
        gang = ["--tasks", "3", "--gpus", "4", "--priority", "5", "--", "sh", "-c", *WAITS, str(gone)]
        assert any("evicts 11 tasks of job" in line for line in user.sees("plan", *gang, is_prose=True))
        urgent = user.says("submit", "-n", "urgent", *gang).strip()
        user.cluster.wait_task(f"{urgent}.0", "Running")
        attached.expect(rf"attempt 1 was evicted at [^ ]+ UTC: .*urgent \(job {urgent} of")
        why_it_waits(user, again, urgent)
        gone.touch()
        user.says("wait", urgent)
        attached.expect("begun 2")
        go.touch()
        attached.expect("attempt 2")
        assert attached.exit_code() == 0
    user.says("wait", again)
    assert user.sees("logs", f"{again}.7") == ["attempt 2"]
    rows = user.says("results", sweep, "-o", "csv").splitlines()[1:]
    assert (len(rows), all("Completed" in row for row in rows)) == (11, True), rows


def why_it_waits(user: User, evicted: str, by: str) -> None:
    """Every list and answer about a job that was evicted says when, by whom and for whom."""
    told = rf"preempted to make room for .*urgent \(job {by} of \w+, priority 5\)"
    for where in ("why", "story"):
        for shown in (user.sees(where, evicted, is_prose=True), user.says(where, evicted).splitlines()):
            assert re.search(told, " ".join(" ".join(shown).split())), (where, shown)
    assert any("low" in line for line in user.sees("ps"))
    rows = user.says("ps", "--columns", "id,reason").splitlines()
    (row,) = [line for line in rows if line.split()[0] == evicted]
    assert re.search(rf"evicted at [0-9:]{{8}}[^:]*: {told}", row), row


def test_holds_changes_and_a_second_submission(user: User) -> None:
    job = user.says("submit", "-n", "later", "--begin", "+1h", "--", "true").strip()
    assert user.says("hold", job, "--reason", "its data is not there").startswith(f"{job} held")
    assert any("Held" in line for line in user.sees("ps"))
    assert "its data is not there" in " ".join(user.sees("why", job, is_prose=True))
    assert "priority 3, time limit 1m" in user.says(
        "update", job, "--priority", "3", "--time-limit", "1m", "--begin", "now"
    )
    assert user.cluster.client.task(job).status == "Pending", "it is held"
    assert user.says("release", job).startswith(f"{job} released")
    user.says("wait", job)
    again = user.says("resubmit", job, "--set", "env.SEED=7", "--set", "priority=0").strip()
    user.says("wait", again)
    view = user.cluster.client.job(again)
    assert (view.name, view.env, view.priority, view.status) == ("later", {"SEED": "7"}, 0, "Completed")
    user.says("release", job, code=6)


def test_lists_follow_changes_and_all_jobs_are_cancelled_at_once(user: User) -> None:
    begun = [
        user.says("submit", "-n", f"cancel-{number}", "--", "sleep", "300").strip() for number in range(2)
    ]
    with a_terminal(user.cluster, "ps", "-w", columns=COLUMNS) as screen:
        screen.expect("cancel-1 .*Running")
        with a_terminal(user.cluster, "cancel", "--all", columns=COLUMNS) as asked:
            asked.expect(r"Cancel 2 jobs \(.*cancel-.*\)\?")
            asked.type("n\n")
            assert asked.exit_code() != 0
        user.says("cancel", "--all", code=2)
        assert "2 jobs cancelled" in user.says("cancel", "--all", "--yes")
        screen.expect("nothing is waiting or running")
        screen.type("\x03")
        assert screen.exit_code() == 130
    assert {user.cluster.client.job(id).status for id in begun} == {"Cancelled"}


def test_where_jobs_run(user: User) -> None:
    client = user.cluster.client
    wide = user.says("submit", "--array", "1-3", "--spread", "--", "sleep", "300").strip()
    wait_until(lambda: client.job(wide).counts.running == 3, what="all of it runs")
    assert sorted(task.node or "" for task in client.tasks(wide)) == ["n1", "n2", "n3"]
    assert user.says("ps", "--columns", "nodes").splitlines()[1].split(",") == client.job(wide).nodes
    away = user.says("submit", "--exclude", "n1,n3", "--", "sleep", "300").strip()
    assert user.cluster.wait_task(away, "Running").node == "n2"
    alone = user.says("submit", "--exclusive", "--nodes", "n3", "--", "sleep", "300").strip()
    assert client.why(alone).dominant.text
    user.says("cancel", wide)
    assert user.cluster.wait_task(alone, "Running").node == "n3"
    beside = user.says("submit", "--nodes", "n3", "--", "true").strip()
    assert f"it starts when job {alone}, which runs on n3, ends" in " ".join(
        user.sees("why", beside, is_prose=True)
    )
    user.says("cancel", away, alone)
    user.says("wait", beside)


def test_the_log_of_a_crashed_attempt_outlives_its_node(user: User) -> None:
    crash = 'if [ "$PHALANX_ATTEMPT" = 1 ]; then echo last words on $PHALANX_NODE; exit 9; fi'
    task = user.says(
        "submit", "-n", "crash", "--retries", "1", "--shell", f"{crash}; echo again; sleep 300"
    ).strip()
    wait_until(lambda: "again" in user.says("logs", task), 30.0, "its second attempt runs")
    words = user.says("logs", task, "--attempt", "1")
    match = re.fullmatch(r"last words on (n[1-3])\n", words)
    assert match is not None, words
    wait_until(
        lambda: any(words.encode() in each.read_bytes() for each in user.cluster.kept_files()),
        what="its log is copied",
    )
    user.cluster.kill(match.group(1))
    assert user.says("logs", "crash", "--attempt", "1") == words, "it is in the place for files"
    user.says("cancel", "crash")
    user.cluster.start_runner(match.group(1))  # the tests of this day may come in any order
    user.cluster.wait_online(match.group(1))
