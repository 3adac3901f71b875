"""Commands run in this process, away from the user's own files, against a fake client."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.cli import completion, session
from phalanx.cli.main import run
from tests.support.fake_client import Cli, CliResult, FakeClient


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home, an empty working folder, and no variable of ours."""
    for name in list(os.environ):
        if name.startswith(("PHALANX_", "KRISHIV_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cluster(away: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """The cluster that every command of this test talks to."""
    found = FakeClient()
    monkeypatch.setattr(session, "connect", lambda _settings: found)
    monkeypatch.setattr(completion, "connect", lambda _settings: found)
    return found


@pytest.fixture
def cli(away: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command line."""

    def call(*args: str) -> CliResult:
        capsys.readouterr()
        code = run(args)
        said = capsys.readouterr()
        return CliResult(code, said.out, said.err)

    return call
