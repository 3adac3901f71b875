"""Completion offers what exists, and prints nothing when it cannot ask."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from phalanx.errors import Unavailable
from tests.support.fake_client import ID, Cli, FakeClient, a_job


@pytest.fixture
def completed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The offers after some words, the last of which is not finished."""

    def ask(*words: str) -> None:
        monkeypatch.setenv("_PHALANX_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["phalanx", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            cli()

    return ask


def test_the_scripts_name_our_command(cli: Cli):
    for shell in ("bash", "zsh", "fish"):
        said = cli("completion", shell)
        assert said.code == 0
        assert "_PHALANX_COMPLETE" in said.out
    assert cli("completion", "tcsh").code == 2


def test_commands_are_offered(completed: Any, capsys: pytest.CaptureFixture[str]):
    completed("su")
    assert capsys.readouterr().out.split() == ["submit"]


def test_living_ids_are_offered(completed: Any, cluster: FakeClient, capsys: pytest.CaptureFixture[str]):
    cluster.held = [a_job(ID), a_job("02zz")]
    completed("why", "01")
    assert capsys.readouterr().out.split() == [ID]


def test_nodes_are_offered_as_targets(
    completed: Any, cluster: FakeClient, capsys: pytest.CaptureFixture[str]
):
    completed("submit", "-t", "n")
    assert capsys.readouterr().out.split() == ["n1"]


def test_without_a_cluster_nothing_is_offered_and_nothing_said(
    completed: Any, capsys: pytest.CaptureFixture[str]
):
    completed("why", "01")
    said = capsys.readouterr()
    assert (said.out.strip(), said.err) == ("", "")


def test_an_error_is_swallowed(completed: Any, cluster: FakeClient, capsys: pytest.CaptureFixture[str]):
    cluster.error = Unavailable("gone")
    completed("logs", "01")
    said = capsys.readouterr()
    assert (said.out.strip(), said.err) == ("", "")


def test_a_slow_cluster_is_not_waited_for(
    completed: Any, cluster: FakeClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    over = Event()

    def jobs(**_asked: Any) -> None:
        over.wait()
        raise Unavailable("too late")

    monkeypatch.setattr(cluster, "jobs", jobs)
    monkeypatch.setattr("phalanx.cli.completion.TIMEOUT_S", 0.01)
    completed("logs", "01")
    over.set()
    assert capsys.readouterr().out.strip() == ""
