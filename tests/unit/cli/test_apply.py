"""`phalanx apply`: files read, cautions shown, all submitted at once."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from msgspec import json

from phalanx.api.schema.apply import AppliedJob, ApplyReply, ApplyRequest
from phalanx.errors import BadRequest, NeverFits
from phalanx.manifests import load
from tests.support.fake_client import ID, Cli, FakeClient, a_gang

GANG = """\
name: train
gang: true
gather: [{layer: rack, must: true}]
groups:
  - {name: worker, tasks: 4, gpus: 8, command: [torchrun, train.py]}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: hello, namespace: default}
spec:
  containers: [{name: main, image: busybox, command: [echo, hello]}]
"""
LAYERS = """\
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ClusterNetworkTopology
metadata: {name: default}
spec:
  networkTopologySpec:
    - {labelKey: [network.topology.nvidia.com/spine], topologyLayer: SpineLayer}
    - {parentTopologyLayer: SpineLayer, topologyLayer: NodeTopologyLayer}
"""


@pytest.fixture
def job(away: Path) -> str:
    (away / "job.yaml").write_text(GANG)
    return "job.yaml"


def asked(cluster: FakeClient) -> ApplyRequest:
    (call,) = [call for call in cluster.asked if call[0] == "apply"]
    request: ApplyRequest = call[1]
    return request


def test_a_job_file_is_handed_in(cli: Cli, cluster: FakeClient, job: str):
    said = cli("apply", "-f", job)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1].split() == [ID, "train", "4"]
    (spec,) = asked(cluster).specs
    assert (spec.name, spec.groups[0].tasks, spec.gather[0].must) == ("train", 4, True)


def test_tasks_of_a_job_file_that_are_no_gang_say_so(cli: Cli, cluster: FakeClient, away: Path):
    one_by_one = "name: x\ncommand: [echo]\ntasks: 3\n"
    for text, told in (
        (one_by_one, True),
        (one_by_one + "gang: true\n", False),
        ("command: [echo]\n", False),
    ):
        (away / "job.yaml").write_text(text)
        err = cli("apply", "-f", "job.yaml").err
        assert ("x: its 3 tasks start one by one; with `gang: true` they start together" in err) == told


def test_several_files_are_one_application(cli: Cli, cluster: FakeClient, job: str, away: Path):
    (away / "pod.yaml").write_text(POD)
    cli("apply", "-f", job, "-f", "pod.yaml")
    assert sorted(spec.name for spec in asked(cluster).specs) == ["hello", "train"]


def test_layers_travel_with_the_jobs(cli: Cli, cluster: FakeClient, away: Path):
    (away / "layers.yaml").write_text(LAYERS)
    (away / "pod.yaml").write_text(POD)
    assert cli("apply", "-f", "layers.yaml", "-f", "pod.yaml").code == 0
    request = asked(cluster)
    assert request.topology is not None
    assert [layer.name for layer in request.topology.layers] == ["SpineLayer"]
    assert request.specs[0].groups[0].command == ["echo", "hello"]


def test_what_cannot_be_honoured_is_told_and_refused_if_strict(cli: Cli, cluster: FakeClient, away: Path):
    (away / "pod.yaml").write_text(POD)
    said = cli("apply", "-f", "pod.yaml")
    assert said.code == 0
    assert "warning: pod.yaml:" in said.err and "image" in said.err
    cluster.asked.clear()
    said = cli("apply", "-f", "pod.yaml", "--strict")
    assert said.code == 2
    assert "image" in said.err
    assert cluster.asked == []


def test_standard_input_is_a_file_too(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GANG.encode())))
    assert cli("apply", "-f", "-").code == 0
    assert asked(cluster).specs[0].name == "train"


def test_a_file_that_cannot_be_read_says_where(cli: Cli, cluster: FakeClient, away: Path):
    (away / "bad.yaml").write_text(GANG.replace("tasks:", "taks:"))
    said = cli("apply", "-f", "bad.yaml")
    assert said.code == 2
    assert "bad.yaml:5" in said.err and "'tasks'" in said.err
    (away / "bytes.yaml").write_bytes(b"\xff\xfe")
    assert "bytes.yaml: it is not UTF-8" in cli("apply", "-f", "bytes.yaml").err
    assert cli("apply", "-f", "nowhere.yaml").code == 2
    assert cluster.asked == []


def test_what_never_ends_is_not_read_whole(
    cli: Cli, cluster: FakeClient, away: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(load, "BYTES_MAX", 1000)
    said = cli("apply", "-f", "/dev/zero")
    assert (said.code, "/dev/zero: 1001 bytes or more are too many; the limit is 1000" in said.err) == (
        2,
        True,
    )
    with Path("/dev/zero").open("rb") as endless:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
        said = cli("apply", "-f", "-")
    assert (said.code, "standard input: 1001 bytes or more" in said.err) == (2, True)
    (away / "large.yaml").write_bytes(bytes(5000))
    said = cli("apply", "-f", "large.yaml")
    assert (said.code, "large.yaml: 5000 bytes are too many; the limit is 1000" in said.err) == (2, True)
    assert not cluster.asked


def test_what_can_never_fit_exits_with_4(cli: Cli, cluster: FakeClient, job: str):
    cluster.error = NeverFits("specs[0] (train): no rack could hold it")
    said = cli("apply", "-f", job)
    assert (said.code, said.err) == (4, "error: job.yaml:1: train: no rack could hold it\n")


def test_every_document_that_is_wrong_is_told(cli: Cli, cluster: FakeClient, away: Path):
    good, bad = "name: good\ncommand: [a]\n", "name: bad\ncommand: [a]\nenv: {B: b, LR: 0.1}\n"
    (away / "jobs.yaml").write_text(f"{bad}---\n{good}---\n{bad}")
    said = cli("apply", "-f", "jobs.yaml")
    assert said.code == 2 and not cluster.asked
    assert [line.partition(" is ")[0] for line in said.err.splitlines()] == [
        "error: jobs.yaml:3: job bad: env['LR']: 0.1",
        "error: jobs.yaml:10: job bad: env['LR']: 0.1",
    ]


def test_a_refusal_names_the_file_and_line_of_the_job_it_is_about(cli: Cli, cluster: FakeClient, away: Path):
    (away / "jobs.yaml").write_text("name: one\ncommand: [a]\n---\nname: two\ncommand: [a]\nqueue: labb\n")
    cluster.error = BadRequest("specs[1]: queue: there is no queue 'labb'")
    for verb in ("apply", "plan"):
        said = cli(verb, "-f", "jobs.yaml")
        assert (said.code, said.err) == (2, "error: jobs.yaml:4: queue: there is no queue 'labb'\n")


def test_without_a_file_the_command_line_is_wrong(cli: Cli, cluster: FakeClient):
    assert cli("apply").code == 2


def test_waiting_ends_with_the_code_of_the_job(cli: Cli, cluster: FakeClient, job: str):
    cluster.ends = [a_gang(status="Failed", reason="exited", exit_code=7)]
    said = cli("apply", "-f", job, "--wait")
    assert said.code == 7
    assert said.out.splitlines()[1].split()[0] == ID


def test_json_is_the_reply(cli: Cli, cluster: FakeClient, job: str):
    cluster.answer = ApplyReply(
        [AppliedJob(ID, "train", 4)], topology_changed=True, warnings=["a preference changes nothing"]
    )
    said = cli("apply", "-f", job, "-o", "json")
    assert json.decode(said.out, type=ApplyReply) == cluster.answer
    assert "warning: a preference changes nothing" in said.err


@pytest.mark.parametrize(("name", "says"), [("nowhere.yaml", "no such file"), (".", "it is a folder")])
def test_what_is_no_file_is_told_by_name(cli: Cli, cluster: FakeClient, name: str, says: str):
    said = cli("apply", "-f", name)
    assert (said.code, cluster.asked) == (2, [])
    assert said.err.startswith(f"error: {name}: {says}")
    assert "Errno" not in said.err


def test_what_names_no_folder_runs_where_it_is_applied(cli: Cli, cluster: FakeClient, away: Path):
    (away / "two.yaml").write_text(
        "groups:\n- {name: a, command: [./a]}\n- {name: b, command: [./b], cwd: /data}\n"
    )
    cli("apply", "-f", "two.yaml")
    assert [group.cwd for group in asked(cluster).specs[0].groups] == [str(away), "/data"]
