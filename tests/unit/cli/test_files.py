"""`phalanx cp`: what is said of a source that names a stage, and what its target may be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from phalanx.api.schema.files import FilesView, FileView
from phalanx.api.schema.workflows import StageView, WorkflowView
from phalanx.errors import NotFound
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task


@pytest.mark.parametrize("more", [(), ("-r",)])
@pytest.mark.parametrize(
    ("path", "hint"), [("lab:out", "17:out"), ("other:out", "as it was"), ("out", "as it was")]
)
def test_a_stage_is_named_by_its_job(
    cli: Cli,
    cluster: FakeClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    hint: str,
    more: tuple[str, ...],
):
    def missing(*_args: Any, **_more: Any) -> Any:
        raise NotFound(f"{ID} is a workflow, not a job", reason="JobNotFound", hint="as it was")

    view = WorkflowView(
        ID, "ft", "ada", "Running", 1.0, {}, None, [StageView("lab", "Completed", "j1", number=17)]
    )
    monkeypatch.setattr(cluster, "file", missing, raising=False)
    monkeypatch.setattr(cluster, "tasks", missing)
    monkeypatch.setattr(cluster, "workflow_view", lambda _id: view, raising=False)
    said = cli("cp", *more, f"{ID}:{path}", ".")
    assert said.code != 0
    assert f"hint: {hint}" in said.err


def test_folders_of_several_tasks_are_named_by_their_numbers(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    cluster.kept_tasks = [a_task(f"{ID}.{number}", number=f"17.{number}") for number in range(2)]
    found = [FileView("model.pt", 2, "")]
    monkeypatch.setattr(
        cluster, "files", lambda id, **_: FilesView(id, 1, found, number=f"17.{id[-1]}"), raising=False
    )
    monkeypatch.setattr(cluster, "file", lambda *_, **__: iter([b"ok"]), raising=False)
    assert cli("cp", "-r", f"{ID}:", str(tmp_path)).code == 0
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.pt")) == [
        "17.0/model.pt",
        "17.1/model.pt",
    ]


def test_a_job_that_left_no_artifacts_says_so(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    cluster.held, cluster.kept_tasks = [a_job()], [a_task(attempt=1)]
    monkeypatch.setattr(cluster, "files", lambda id, **_: FilesView(id, 1, []), raising=False)
    assert "no artifacts" in cli("files", ID).err
    assert cli("files", ID, "-o", "json").err == ""


@pytest.fixture
def an_artifact(cluster: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "file", lambda *_, **__: iter([b"wei", b"ghts"]), raising=False)


@pytest.mark.usefixtures("an_artifact")
def test_a_pipe_or_a_device_is_written_to_and_stays(cli: Cli, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert cli("cp", f"{ID}:model.pt", str(pipe)).code == 0
        assert os.read(reader, 100) == b"weights"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.usefixtures("an_artifact")
def test_a_link_stays_and_leads_to_what_was_copied(cli: Cli, tmp_path: Path):
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    assert cli("cp", f"{ID}:model.pt", str(tmp_path / "link")).code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"weights"
    assert not [*tmp_path.glob(".*")]
