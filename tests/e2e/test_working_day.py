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

    def sees(self, *words: str, code: int = 0) -> list[str]:
        """What a command shows on a terminal, line by line; no line is wider than that."""
        with a_terminal(self.cluster, *words, rows=24, columns=COLUMNS) as terminal:
            assert terminal.exit_code() == code, terminal.shown
            lines = ESCAPES.sub("", terminal.shown.decode()).replace("\r", "").splitlines()
        assert [line for line in lines if len(line) > COLUMNS] == [], lines
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


def test_a_gang_preempts_and_the_victim_says_so(user: User) -> None:
    low = user.says("submit", "-n", "low", "--array", "1-12", "--gpus", "1", "--", "sleep", "300").strip()
    wait_until(lambda: user.cluster.client.job(low).counts.running == 12, 30.0, "all of it runs")
    planned = user.sees("plan", "--tasks", "2", "--gpus", "4", "--priority", "5", "--", "sleep", "1")
    assert any("evicts 8 tasks of job" in line for line in planned), planned
    gang = user.says(
        "submit", "-n", "urgent", "--tasks", "2", "--gpus", "4", "--priority", "5", "--", "sleep", "2"
    ).strip()
    user.says("wait", gang)
    wait_until(lambda: user.cluster.client.job(low).counts.running == 12, 30.0, "it runs again")
    story = user.says("story", low)
    told = rf"8 tasks preempted to make room for 2 tasks of urgent \(job {gang} of \w+, priority 5\) on"
    assert re.search(told, " ".join(story.split())), story
    assert any("low" in line for line in user.sees("ps"))
    user.says("cancel", "low")


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
