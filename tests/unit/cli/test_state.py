"""The state folder: one owner, one announcement, a clear message when it cannot be used."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from phalanx.cli.session import CliSession
from phalanx.cli.state import announced, claimed, endpoint_of, owner, prepare
from phalanx.config import load
from phalanx.endpoint import Endpoint, ProcessOwner, endpoint
from phalanx.errors import Conflict, Unavailable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "state"
    prepare(found)
    return found


def test_it_is_made_for_us_alone(folder: Path):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["log"]


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path):
    tmp_path.chmod(0o777)
    with pytest.raises(Conflict, match="others may write"):
        prepare(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="Not a directory") as caught:
        prepare(tmp_path / "file" / "state")
    assert "--state" in caught.value.hint


def test_a_full_disk_is_told_and_keeps_nobody_from_being_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    prepare(tmp_path / "state")
    assert "no space left" in capsys.readouterr().err


def test_only_one_may_hold_it(folder: Path):
    with claimed(folder):
        assert owner(folder) == ProcessOwner.of(os.getpid())
        with pytest.raises(Conflict, match=rf"already up in .*pid {os.getpid()}"), claimed(folder):
            pass
    assert owner(folder) is None
    with claimed(folder):
        pass


def test_a_pid_that_is_used_again_is_not_the_owner(folder: Path):
    (folder / "up.pid").write_text(f'{{"pid": {os.getpid()}, "started": 1}}')
    assert owner(folder) is None
    (folder / "up.pid").write_text("not json")
    assert owner(folder) is None


def test_an_owner_is_a_pid_and_a_start():
    me = ProcessOwner.of(os.getpid())
    assert me is not None
    assert me.is_alive
    assert not replace(me, started=me.started + 1).is_alive
    assert ProcessOwner.of(2**22 + 1) is None


def test_the_announcement_lasts_as_long_as_the_cluster(folder: Path):
    told = Endpoint("http://127.0.0.1:7433", "127.0.0.1:7434", str(folder / "credentials"), os.getpid())
    with announced(folder, told):
        assert endpoint(folder) == told
        assert stat.S_IMODE((folder / "endpoint.json").stat().st_mode) == 0o600
    assert endpoint(folder) is None


def test_the_endpoint_of_some_settings(tmp_path: Path):
    settings = load({"state_dir": tmp_path, "coordinator.bind": "::1"}, environment={}, folder=tmp_path)
    told = endpoint_of(settings)
    assert (told.address, told.link) == ("http://[::1]:7433", "[::1]:7434")


def test_a_cluster_that_was_killed_is_not_asked(folder: Path):
    gone = Endpoint("http://127.0.0.1:1", "127.0.0.1:2", "x", 2**22 + 1)
    with announced(folder, gone), pytest.raises(Unavailable, match="was killed"):
        CliSession({"state_dir": folder}).client()
