"""A database or its WAL that was deleted or emptied behind our back is noticed by a mark kept beside it (XW7)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.clock import SteadyClock
from phalanx.config import load
from phalanx.coordinator.leadership import Leadership, LeadershipConfig, Role
from phalanx.coordinator.main import _opened
from phalanx.errors import ConfigError
from phalanx.store.protocol import Candidate
from tests.support.candidates import Listener

pytestmark = pytest.mark.anyio
WRITES = 200
# A coordinator's store that accepts jobs, and dies without closing anything.
LIFE = f"""
import asyncio, os, pathlib, signal, sys
from phalanx.coordinator.main import _opened
from phalanx.config import load
from phalanx.core.cluster.events import encode
from phalanx.store.protocol import Batch, Candidate

async def live(folder):
    store = await _opened(load({{"state_dir": folder}}, environment={{"HOME": str(folder)}}).coordinator)
    await store.load()
    epoch = (await store.elect(Candidate("a"), 6.0)).epoch
    for revision in range(1, {WRITES} + 1):
        await store.append(epoch, Batch(revision, encode([])), [])
    print(revision, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(live(pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state folder of a coordinator that was killed after it had accepted something."""
    (tmp_path / "coordinator").mkdir()
    life = subprocess.run([sys.executable, "-c", LIFE, str(tmp_path)], capture_output=True, check=False)
    assert (life.returncode, life.stdout) == (-signal.SIGKILL, b"%d\n" % WRITES), life.stderr.decode()
    assert (tmp_path / "coordinator" / "phalanx.db-wal").stat().st_size > 0
    return tmp_path


async def start(folder: Path) -> Leadership:
    store = await _opened(load({"state_dir": folder}, environment={"HOME": str(folder)}).coordinator)
    member = Leadership(store, Candidate("a"), LeadershipConfig(), SteadyClock(), Listener())
    try:
        await member.open()
    finally:
        await store.close()
    return member


async def test_what_was_accepted_is_there_after_a_kill(folder: Path):
    member = await start(folder)
    assert member.role is Role.ACTIVE
    assert member.state.revision == WRITES + 1


async def test_a_deleted_wal_is_noticed(folder: Path):
    (folder / "coordinator" / "phalanx.db-wal").unlink()
    (folder / "coordinator" / "phalanx.db-shm").unlink()
    with pytest.raises(ConfigError, match=rf"has seen epoch 1, revision {WRITES}") as refused:
        await start(folder)
    assert "phalanx store repair --accept-loss" in refused.value.hint


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_a_database_that_is_gone_is_noticed(folder: Path, how: str):
    for path in (folder / "coordinator").glob("phalanx.db*"):
        path.unlink()
    if how == "emptied":
        (folder / "coordinator" / "phalanx.db").touch()
    for _ in range(2):  # and a second try does not change it
        with pytest.raises(ConfigError, match=r"is at epoch 0, revision 0.*was emptied"):
            await start(folder)


def repaired(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phalanx", "store", "repair", *flags]
    where = {"PHALANX_STATE_DIR": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, env=where, capture_output=True, text=True, check=False)


async def test_a_loss_can_be_accepted(folder: Path):
    (folder / "coordinator" / "phalanx.db-wal").unlink()
    (folder / "coordinator" / "phalanx.db-shm").unlink()
    refused = repaired(folder, "--accept-loss")
    assert refused.returncode != 0
    assert f"revision {WRITES}" in refused.stderr
    assert "--yes" in refused.stderr
    assert repaired(folder, "--accept-loss", "--yes").returncode == 0
    assert (await start(folder)).role is Role.ACTIVE
