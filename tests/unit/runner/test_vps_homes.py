"""The files of VPSs on a node: made once, kept, told to the coordinator, and removed with all in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.core.model.job import Vps, ulid
from phalanx.core.model.orders import Brief, Start
from phalanx.core.model.resources import Grant
from phalanx.runner.accounts import Account
from phalanx.runner.vps_homes import VpsHomes
from phalanx.runner.vps_options import OPTIONS, ServerOptions, decode
from tests.support.builders import a_job
from tests.support.deep_folders import make_deep
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
JOB = ulid(1, 1)


def a_start(port: int = 30_001, address: str = "") -> Start:
    return Start((JOB, 0, 1), 0, Grant(1, 0, address=address), None, 0, port=port)


def a_brief() -> Brief:
    job = a_job()
    return Brief(
        JOB, 0, job.groups[0].command, "", "default", JOB, 1, None, 5.0, None,
        vps=Vps("upload", ("ssh-ed25519 AAAA",)), host_key="private",
    )  # fmt: skip


def told(root: Path) -> ServerOptions:
    return decode((root / JOB / OPTIONS).read_bytes())


def test_a_home_is_made_once_and_its_files_stay(tmp_path: Path):
    homes = VpsHomes(tmp_path / "vps")
    assert homes.names() == []
    homes.prepare(a_start(), a_brief(), None)
    kept = Path(homes.home(JOB)) / "kept"
    kept.write_text("1")
    homes.prepare(a_start(30_002), a_brief(), None)
    assert kept.exists()
    assert told(tmp_path / "vps") == ServerOptions(
        homes.home(JOB), 30_002, ("127.0.0.1",), "private", ("ssh-ed25519 AAAA",)
    )
    assert homes.names() == [JOB] == VpsHomes(tmp_path / "vps").names()


def test_the_home_is_the_accounts_and_what_its_server_is_told_is_not(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another account")
    homes = VpsHomes(tmp_path / "vps")
    homes.prepare(a_start(), a_brief(), Account("nobody", 65_534, 65_534, (7,), "/", "/bin/sh"))
    folder = tmp_path / "vps" / JOB
    options, home = (folder / OPTIONS).stat(), (folder / "home").stat()
    assert (options.st_uid, options.st_mode & 0o777) == (0, 0o400)
    assert (home.st_uid, home.st_mode & 0o777) == (65_534, 0o700)
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o711)
    assert told(tmp_path / "vps").account == (65_534, 65_534, (7,))


def test_a_vps_with_an_address_of_its_own_listens_there_and_one_without_ssh_nowhere(tmp_path: Path):
    homes = VpsHomes(tmp_path)
    homes.prepare(a_start(address="10.128.0.5"), a_brief(), None, ["192.0.2.1"])
    assert told(tmp_path).addresses == ("127.0.0.1", "10.128.0.5")
    homes.prepare(a_start(), a_brief(), None, ["192.0.2.1"])
    assert told(tmp_path).addresses == ("127.0.0.1", "192.0.2.1")
    homes.prepare(a_start(0), a_brief(), None)
    assert told(tmp_path).addresses == ()


async def test_a_removed_home_is_gone_with_all_in_it_and_nothing_else(tmp_path: Path):
    homes = VpsHomes(tmp_path)
    homes.prepare(a_start(), a_brief(), None)
    (tmp_path / "of somebody else").mkdir()
    homes.remove(ulid(1, 2))
    homes.remove(JOB)
    assert homes.names() == []
    await until(lambda: [each.name for each in tmp_path.iterdir()] == ["of somebody else"])


async def test_folders_within_folders_without_end_are_removed(tmp_path: Path):
    homes = VpsHomes(tmp_path)
    homes.prepare(a_start(), a_brief(), None)
    here = os.open(homes.home(JOB), os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    homes.remove(JOB)
    await until(lambda: not [*tmp_path.iterdir()])


async def test_what_an_earlier_runner_began_to_remove_is_removed(tmp_path: Path):
    left = tmp_path / f".removed-{JOB}" / "home"
    left.mkdir(parents=True)
    (left / "file").touch()
    make_deep(left)
    VpsHomes(tmp_path).sweep()
    await until(lambda: not [*tmp_path.iterdir()])
