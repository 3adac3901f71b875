"""Workflows on real processes: built in Python, read from files, over kills of the coordinator; and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.workflows import StageSpec, WorkflowSpec
from phalanx.errors import BadRequest, Conflict, NotFound, PhalanxError
from phalanx.manifests.read import read
from tests.support.real_cluster import a_real_cluster

GIVES = 'import json, os, sys; json.dump({}, open(os.environ["PHALANX_RESULT"], "w"))'
ADDS = "import json, os, sys; json.dump(sum(map(int, sys.argv[1:])), open(os.environ['PHALANX_RESULT'], 'w'))"


def test_a_graph_built_in_python_runs_and_its_values_arrive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "give.py").write_text(GIVES.format('{"n": [1, 20]}'))
    with phalanx.local() as cluster:
        flow = cluster.workflow("sums")
        one = flow.stage("one", ["python3", "give.py"])
        two = flow.stage("two", ["python3", "-c", ADDS, one.result["n"][0], one.result["n"][1]])
        flow.stage("last", ["python3", "-c", ADDS, two.result, "300"], env={"FROM": two.result})
        flow.stage("never", ["/bin/false"], when=(two, "result", "7"))
        run = flow.submit()
        view = run.wait(timeout=30)
        assert view.status == "Completed"
        assert run.results() == {"one": {"n": [1, 20]}, "two": 21, "last": 321}
        assert {stage.name: stage.status for stage in view.stages}["never"] == "Skipped"
        assert cluster.job(f"{run.id}:last").env["FROM"] == "21"
        (tmp_path / "flow.yaml").write_text(
            "spec: {stages: [{name: it, spec: {command: [python3, give.py]}}]}"
        )
        assert cluster.submit_workflow_file("flow.yaml").wait(timeout=30, check=True).stages[0].name == "it"
        assert cluster.job(run.jobs["two"]).name == "sums.two"
        story = [line.text for line in cluster.story(run.id).items]
        assert story[0] == "submitted: workflow sums of 4 stages"
        assert "stage two completed" in story
        refuses(cluster, run.id)


def test_a_large_result_reaches_the_stage_that_refers_to_it():
    with phalanx.local() as cluster:
        flow = cluster.workflow()
        big = flow.stage("big", ["python3", "-c", GIVES.format('["x" * 5000, "ok"]')])
        flow.stage("user", ["/bin/echo", big.result[0]], when=(big, "1", "ok"))
        flow.stage("lost", ["/bin/echo", big.artifact("no.txt")])
        run = flow.submit()
        stages = {stage.name: stage for stage in run.wait(timeout=30).stages}
        assert stages["user"].status == "Completed", stages["user"].reason
        assert b"".join(cluster.logs(run.jobs["user"])) == b"x" * 5000 + b"\n"
        assert stages["lost"].status == "Failed"
        assert stages["lost"].reason == f"task {run.jobs['big']} has left no artifact 'no.txt'"
        assert cluster.result(run.jobs["big"]) == ["x" * 5000, "ok"]
        plain = cluster.submit(command=["/bin/true"]).task_ids[0]
        cluster.wait(plain, timeout=30)
        for ask, reason in (
            (lambda: cluster.result(plain), "NoResult"),
            (lambda: list(cluster.file(plain, "no.txt")), "FileNotFound"),
        ):
            with pytest.raises(NotFound) as found:
                ask()
            assert found.value.reason == reason


def test_a_workflow_is_stopped_at_its_deadline_and_goes_on_with_another() -> None:
    with phalanx.local() as cluster:
        flow = cluster.workflow("slow", deadline=2.0)
        one = flow.stage("one", ["/bin/true"])
        two = flow.stage("two", ["/bin/sleep", "60"], after=[one])
        flow.stage("three", ["/bin/true"], after=[two])
        run = flow.submit()
        assert run.warnings == [
            "whether it keeps its limits is not known: no earlier run and no time limit is known of one, two, three"
        ]
        view = run.wait(timeout=30)
        late = "the deadline of the workflow has passed"
        assert (view.status, view.reason) == ("Failed", late)
        assert {stage.name: (stage.status, stage.reason) for stage in view.stages} == {
            "one": ("Completed", ""),
            "two": ("Failed", late),
            "three": ("Failed", late),
        }
        assert (
            view.deadline_at is not None and view.ended_at is not None and view.ended_at >= view.deadline_at
        )
        with pytest.raises(PhalanxError) as caught:
            run.retry()
        assert caught.value.reason == "DeadlinePassed"
        assert sorted(run.retry(deadline="1h").jobs) == ["three", "two"]
        run.cancel()
        assert run.wait(timeout=30).status == "Cancelled"


def test_a_workflow_is_stopped_when_it_has_cost_its_budget() -> None:
    with phalanx.local() as cluster:
        flow = cluster.workflow("dear", budget=1e-5)
        flow.stage("one", ["/bin/sleep", "60"], cores=1)
        view = flow.submit().wait(timeout=30)
        assert view.status == "Failed"
        assert view.reason.startswith("the budget of the workflow is used up: ")
        assert view.cost >= 1e-5


def refuses(cluster: phalanx.Client, id: str) -> None:
    """Every mistake about a workflow that is there, and about stages that are not."""
    told: dict[str, type[PhalanxError]] = {}
    asked = {
        "NothingToRetry": lambda: cluster.retry_workflow(id),
        "StageNotFound": lambda: cluster.retry_workflow(id, "no"),
        "AlreadyEnded": lambda: cluster.cancel_workflow(id),
        "WorkflowNotFound": lambda: cluster.workflow_view("7" * 26),
        "UnknownTaskType": lambda: cluster.submit_workflow(a_spec(task_type="ppo")),
        "UnknownStage": lambda: cluster.submit_workflow(a_spec(["true"], after=["b"])),
        "BadReference": lambda: cluster.submit_workflow(a_spec(["echo", "${b.result.x}"])),
    }
    for reason, ask in asked.items():
        with pytest.raises(PhalanxError) as caught:
            ask()
        assert caught.value.reason == reason
        told[reason] = type(caught.value)
    assert told["UnknownTaskType"] is BadRequest
    assert told["AlreadyEnded"] is Conflict
    assert told["WorkflowNotFound"] is NotFound
    ring = [StageSpec(a, JobSpec([GroupSpec(command=["true"])]), [b]) for a, b in ("xy", "yx")]
    with pytest.raises(BadRequest, match="in a circle: x → y → x") as found:
        cluster.submit_workflow(WorkflowSpec(ring))
    assert found.value.reason == "Cycle"


def a_spec(
    command: list[str] | None = None, *, task_type: str = "", after: list[str] | None = None
) -> WorkflowSpec:
    job = JobSpec([GroupSpec(command=command or [])])
    return WorkflowSpec([StageSpec("a", job, after or [], None, task_type)])


FILE = """
apiVersion: flowmesh/v1
kind: Workflow
metadata: {name: ft}
spec:
  graph:
    nodes:
      - name: train
        spec: {shell: 'while [ ! -e GATE ]; do sleep 0.05; done; echo run >> RUNS; echo "[7]" > $PHALANX_RESULT'}
      - {name: judge, dependsOn: [train], spec: {taskType: echo, checkpoint: {load: "${train.result.0}"}}}
      - {name: flaky, dependsOn: [judge], spec: {shell: 'test -e FIXED', max_attempts: 1}}
      - {name: last, dependsOn: [flaky], spec: {taskType: double, data: 4}}
"""


def test_finished_stages_are_kept_over_kills_and_retries(tmp_path: Path):
    """A stage waits, the coordinator is killed, a stage fails, what did not complete runs again, and nothing twice."""
    (tmp_path / "executors.toml").write_text('[executors]\ndouble = "site_functions:double"\n')
    (tmp_path / "site_functions.py").write_text("def double(spec):\n    return {'twice': 2 * spec['data']}\n")
    text = FILE.replace("GATE", str(tmp_path / "gate")).replace("RUNS", str(tmp_path / "runs"))
    [found] = read([("flow.yaml", text.replace("FIXED", str(tmp_path / "fixed")))]).workflows
    settings = {"coordinator.executors_file": str(tmp_path / "executors.toml")}
    with a_real_cluster(tmp_path / "cluster", lost_after_s=20.0, settings=settings) as cluster:
        client = cluster.client
        flow = phalanx.WorkflowSpec(
            [
                stage
                if stage.name != "last"
                else phalanx.StageSpec(
                    "last", JobSpec([GroupSpec(cwd=str(tmp_path))]), stage.after, None, "double", stage.spec
                )
                for stage in found.spec.stages
            ],
            "ft",
        )
        id = client.submit_workflow(flow).id
        cluster.wait_task(f"{id}:train", "Running")
        with pytest.raises(Conflict) as early:
            client.retry_workflow(id)
        assert early.value.reason == "NotEnded"
        with pytest.raises(NotFound) as waits:
            client.job(f"{id}:judge")
        assert waits.value.reason == "StageWaits"
        cluster.kill("coordinator")
        (tmp_path / "gate").touch()
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        ended = client.wait_workflow(id, timeout=30)
        stages = {stage.name: stage for stage in ended.stages}
        assert {name: stage.status for name, stage in stages.items()} == {
            "train": "Completed", "judge": "Completed", "flaky": "Failed", "last": "Failed",
        }  # fmt: skip
        assert stages["last"].parent == "flaky"
        assert stages["judge"].result["checkpoint"] == {"load": 7}
        (tmp_path / "fixed").touch()
        assert set(client.retry_workflow(id).jobs) == {"flaky", "last"}
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        again = client.wait_workflow(id, timeout=30)
        assert again.status == "Completed"
        assert again.stages[3].result == {"twice": 8}
        assert (tmp_path / "runs").read_text() == "run\n"
        assert [each.id for each in client.workflows().items] == [id]


def test_one_user_does_not_see_what_stages_of_another_gave(tmp_path: Path):
    with a_real_cluster(tmp_path / "cluster") as cluster:
        mine = cluster.client.create_token(phalanx.TokenRequest(name="ada", role="user")).token
        other = cluster.client.create_token(phalanx.TokenRequest(name="bob", role="user")).token
        address = cluster.address("coordinator")
        with phalanx.Client(address, mine) as ada, phalanx.Client(address, other) as bob:
            flow = ada.workflow("secret")
            flow.stage("a", ["python3", "-c", GIVES.format('{"key": "hush"}')])
            flow.stage("b", ["/bin/echo", "${a.result.key}"])
            run = flow.submit()
            assert run.wait(timeout=30).stages[0].result == {"key": "hush"}
            assert bob.workflow_view(run.id).stages[0].result is None
            used = run.jobs["b"]
            assert ada.job(used).command == ["/bin/echo", "hush"]
            listed = [job for job in bob.jobs().items if job.id == used]
            for job in (bob.job(used), bob.wait(used, timeout=1), *listed):
                assert isinstance(job, phalanx.JobView)
                assert job.command == job.groups[0].command == ["/bin/echo", "${a.result.key}"]
            assert len(listed) == 1
            told = f"{bob.story(used)} {bob.why(used)} {bob.story(run.id)} {bob.workflow_view(run.id)}"
            assert "hush" not in told
            with pytest.raises(PhalanxError, match="ada"):
                bob.retry_workflow(run.id, "a")


EXECUTORS = """
[executors]
here = { run = "site_functions:where", cwd = "SITE", env = { COLOUR = "green" } }
gone = { run = "no_such.module:run", cwd = "SITE" }
nameless = { run = "site_functions:absent", cwd = "SITE" }
broken = { run = "broken_module:run", cwd = "SITE" }
folderless = { run = "site_functions:where", cwd = "SITE/none" }
pythonless = { run = "site_functions:where", cwd = "SITE", python = "/no/such/python" }
"""
WHERE = "import os\n\ndef where(spec):\n    return {'in': os.getcwd(), 'of': NAME, 'colour': os.environ['COLOUR']}\n"


def test_functions_are_found_in_the_folder_of_their_executor_or_of_their_stage(tmp_path: Path):
    site, own = tmp_path / "site", tmp_path / "own"
    for folder in (site, own):
        folder.mkdir()
        (folder / "site_functions.py").write_text(WHERE.replace("NAME", repr(folder.name)))
    (site / "broken_module.py").write_text("import no_such_library\n")
    (tmp_path / "executors.toml").write_text(EXECUTORS.replace("SITE", str(site)))
    settings = {"coordinator.executors_file": str(tmp_path / "executors.toml")}
    refused = ("gone", "nameless", "broken", "folderless", "pythonless")
    with a_real_cluster(tmp_path / "cluster", settings=settings) as cluster:
        flow = cluster.client.workflow("functions")
        flow.stage("site", task_type="here", max_retries=0)
        flow.stage("own", task_type="here", cwd=str(own), env={"COLOUR": "red"}, max_retries=0)
        for name in refused:
            flow.stage(name, task_type=name, max_retries=0)
        run = flow.submit()
        stages = {stage.name: stage for stage in run.wait(60.0).stages}
        assert run.results() == {
            "site": {"in": str(site), "of": "site", "colour": "green"},
            "own": {"in": str(own), "of": "own", "colour": "red"},
        }
        tasks = {name: cluster.client.task(run.jobs[name]) for name in refused}
    assert {(task.status, task.reason, task.exit_code) for task in tasks.values()} == {
        ("Failed", "refused", 127)
    }
    said = {name: task.message for name, task in tasks.items()}
    assert "cannot run no_such.module:run: ModuleNotFoundError: No module named 'no_such'" in said["gone"]
    assert str(site) in said["gone"]
    assert "the module site_functions has no absent" in said["nameless"]
    assert "ModuleNotFoundError: No module named 'no_such_library'" in said["broken"]
    assert "import no_such_library" in tasks["broken"].stderr_tail
    assert f"{site}/none" in said["folderless"]
    assert "/no/such/python" in said["pythonless"]
    assert "cannot run no_such.module:run" in stages["gone"].reason
