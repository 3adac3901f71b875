"""gRPC with real processes: the example runner, which knows nothing but the proto, and a client that was given grpc://."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import phalanx
from phalanx.errors import PhalanxError, Unavailable
from tests.e2e.foreign_runner import TOKEN, a_grpc_cluster, a_runner, run_all
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until
from tests.tidy.source import ROOT

EXAMPLE = ROOT / "examples/runner.py"
RUNNER = (sys.executable, str(EXAMPLE))
LINES_MAX = 155


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As the example's first lines say."""
    folder = tmp_path_factory.mktemp("stubs")
    out = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", ROOT / "proto/phalanx/v1", *out, "runners.proto"],
        check=True,
    )
    return str(folder)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealCluster, str]]:
    with a_grpc_cluster(tmp_path_factory.mktemp("grpc") / "c") as found:
        yield found


def test_the_example_uses_nothing_but_the_proto():
    text = EXAMPLE.read_text()
    assert text.count("\n") <= LINES_MAX
    named = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    own = {name for name in named if name.partition(".")[0] not in sys.stdlib_module_names}
    assert own == {"grpc", "runners_pb2", "runners_pb2_grpc"}


@pytest.mark.timeout(180)
def test_the_example_runs_every_task_once_though_the_coordinator_is_killed(
    cluster: tuple[RealCluster, str], stubs: str
):
    parts, address = cluster
    with a_runner(parts, RUNNER, "n1", address, PYTHONPATH=stubs):
        assert run_all(parts, tasks=120, kills=2)[:3] == (0, 0, 120)


def test_the_example_starts_gangs_whole_stops_and_tells_how_tasks_ended(
    cluster: tuple[RealCluster, str], stubs: str
):
    parts, address = cluster
    client = parts.client
    with a_runner(parts, RUNNER, "n2", address, PYTHONPATH=stubs):
        gang = client.gang(["/bin/true"], 2, cores=1).batch_id
        failing = client.submit(shell="exit 7", max_retries=0).batch_id
        slow = client.submit(command=["sleep", "300"], time_limit=0.2, grace=0.1, max_retries=0).batch_id
        assert client.wait(gang, 30.0).status == "Completed"
        parts.wait_task(failing, "Failed")
        assert client.task(failing).exit_code == 7
        assert client.why(failing).fix is None  # its stderr cannot be read
        with pytest.raises(Unavailable, match="serves no logs"):
            list(client.logs(failing))
        assert (parts.wait_task(slow, "Failed").reason) == "timeout"
        long = client.submit(command=["sleep", "300"], max_retries=0).batch_id
        parts.wait_task(long, "Running")
        client.cancel(long)
        wait_until(lambda: client.node("n2").task_count == 0, what="the place is given back")


def test_a_second_example_in_the_same_folder_does_not_take_the_place_of_the_first(
    cluster: tuple[RealCluster, str], stubs: str
):
    parts, address = cluster
    with a_runner(parts, RUNNER, "n5", address, PYTHONPATH=stubs):
        life = parts.client.node("n5").incarnation
        second = subprocess.run(
            [*RUNNER, "n5", address],
            cwd=parts.folder / "n5",
            env={"PYTHONPATH": stubs, "PATH": "/usr/bin:/bin", TOKEN: str(parts.node_token)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert second.returncode and "BlockingIOError" in second.stderr
        assert parts.client.node("n5").incarnation == life


def test_the_example_stops_a_task_that_is_paused_and_continues_it(
    cluster: tuple[RealCluster, str], stubs: str, tmp_path: Path
):
    parts, address = cluster
    with a_runner(parts, RUNNER, "n4", address, PYTHONPATH=stubs):
        pid = tmp_path / "pid"
        # One process: a shell that is stopped between vfork and exec of a child waits for that instead.
        alone = f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300"
        id = parts.client.submit(shell=alone, grace=0.5, max_retries=0).batch_id
        wait_until(pid.exists, what="it runs")
        parts.wait_task(id, "Running")
        is_stopped = partial(_is_stopped, pid.read_text().strip())
        parts.client.pause(id)
        wait_until(is_stopped, what="it stands still")
        parts.client.resume(id)
        wait_until(lambda: not is_stopped(), what="it goes on")
        parts.client.pause(id)
        wait_until(is_stopped, what="it stands still")
        parts.client.cancel(id)
        wait_until(lambda: parts.client.node("n4").task_count == 0, what="the place is given back")


def _is_stopped(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_workflows_over_grpc_are_those_of_rest(
    cluster: tuple[RealCluster, str], stubs: str, monkeypatch: pytest.MonkeyPatch
):
    """Submitted, shown, listed, retried and cancelled over gRPC; REST gives the same answers and the same errors."""
    parts, address = cluster
    rest = parts.client
    monkeypatch.setenv("OVER_GRPC", "yes")
    with (
        phalanx.Client(f"grpc://{address}", parts.user_token) as client,
        a_runner(parts, RUNNER, "n-flows", address, PYTHONPATH=stubs),
    ):
        flow = client.workflow("over-grpc")
        first = flow.stage("first", ["/bin/true"])
        flow.stage("second", ["/bin/false"], after=[first], max_retries=0)
        flow.stage("third", ["/bin/true"], after=["second"])
        run = flow.submit()
        view = run.wait(timeout=30)
        assert (view.status, view.stages[2].parent) == ("Failed", "second")
        assert rest.environment(run.jobs["first"]).exported["OVER_GRPC"] == "yes"
        assert client.workflow_view(run.id) == rest.workflow_view(run.id)
        assert client.workflow_view(run.id).stages[2].reason == "it depends on stage second, which failed"
        again = client.retry_workflow(run.id, "second")
        assert set(again.jobs) == {"second", "third"}
        run.wait(timeout=30)
        held = client.workflow("held")
        held.stage("long", ["sleep", "300"])
        other = held.submit()
        assert client.cancel_workflow(other.id).cancelled == 1
        assert other.wait(timeout=30).status == "Cancelled"
        wait_until(lambda: rest.node("n-flows").task_count == 0, what="it has stopped, and costs no more")
        assert client.workflows(limit=1).next_cursor == other.id
        assert client.workflows() == rest.workflows()
        assert [each.text for each in client.story(run.id).items] == [
            each.text for each in rest.story(run.id).items
        ]
        assert client.why(run.id).dominant == rest.why(run.id).dominant
        request = phalanx.WorkflowRequest(held.spec(), request_id="once")
        assert client.submit_workflow(request).id == rest.submit_workflow(request).id
        for ask in (
            lambda over: over.workflow_view("7" * 26),
            lambda over: over.cancel_workflow(run.id),
            lambda over: over.retry_workflow(run.id, "no"),
            lambda over: over.submit_workflow(phalanx.WorkflowSpec([])),
        ):
            told = []
            for over in (client, rest):
                with pytest.raises(PhalanxError) as refused:
                    ask(over)
                told.append((type(refused.value), refused.value.reason, refused.value.detail))
            assert told[0] == told[1]


def test_the_command_line_speaks_grpc_where_its_variable_says_so(
    cluster: tuple[RealCluster, str], stubs: str
):
    parts, address = cluster
    variables = {
        "KRISHIV_COORDINATOR": f"grpc+tcp://{address}",
        "PHALANX_TOKEN_FILE": str(parts.folder / "token"),
        "XDG_STATE_HOME": str(parts.folder / "state"),
        "HOME": str(parts.folder),
        "PATH": "/usr/bin:/bin",
    }

    def phalanx(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "phalanx", *words],
            env=variables,
            cwd=parts.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with a_runner(parts, RUNNER, "n3", address, PYTHONPATH=stubs):
        id = phalanx("submit", "--", "/bin/true").split()[-1]
        phalanx("wait", id)
        long = phalanx("submit", "--", "sleep", "300").split()[-1]
        phalanx("cancel", long)
        assert "n3" in phalanx("nodes")
        shown = phalanx("ps", "--all")
        assert "Completed" in shown and "Cancelled" in shown
