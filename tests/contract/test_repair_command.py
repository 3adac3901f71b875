"""`phalanx store repair` on a real file: what is damaged and whose, the choices, and what is chosen."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import SqliteBackend
from tests.contract.logs import Lived
from tests.support.forked import run_command


@pytest.fixture
def lived() -> Lived:
    return Lived()


@pytest.fixture
def folder(tmp_path: Path, lived: Lived) -> Path:
    """A state folder whose log has a damaged record: the end of a job."""
    (tmp_path / "coordinator").mkdir()
    backend = SqliteBackend(tmp_path / "coordinator" / "phalanx.db")

    async def prepared() -> None:
        await lived.keep(await backend.store())
        await backend.flip("log", str(an_end(lived)))
        await backend.close()

    asyncio.run(prepared())
    return tmp_path


def an_end(lived: Lived) -> int:
    """Where a job ended and nothing else happened, so that it is the only one that is concerned."""
    ends = [batch for batch in lived.batches() if b"AttemptEnded" in batch.body]
    alone = [batch.revision for batch in ends if b"TaskPlaced" not in batch.body]
    return [revision for revision in alone if revision > lived.image[0]][1]


def phalanx(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    where = {"PHALANX_STATE_DIR": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = run_command(["store", *words], where)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_without_a_choice_it_names_the_jobs_and_changes_nothing(folder: Path, lived: Lived):
    for _ in range(2):
        told = phalanx(folder, "repair")
        assert told.returncode == 1
        assert f"to {an_end(lived)};" in told.stdout
        for choice in ("phalanx store restore", "--hold", "--to-image"):
            assert choice in told.stdout
    (batch,) = [each for each in lived.batches() if each.revision == an_end(lived)]
    found = json.loads(phalanx(folder, "repair", "-o", "json").stdout)
    assert {each["job"] for each in found["survey"]["concerned"]} <= set(batch.subjects)
    assert phalanx(folder, "check").returncode == 1
    refused = phalanx(folder, "repair", "--hold", "--to-image")
    assert (refused.returncode, "one choice" in refused.stderr) == (2, True)


def test_with_hold_everything_that_can_be_read_is_kept(folder: Path, lived: Lived):
    told = json.loads(phalanx(folder, "repair", "--hold", "-o", "json").stdout)
    assert told["set_aside"] == [an_end(lived)]
    assert phalanx(folder, "check").returncode == 0
    assert phalanx(folder, "repair").returncode == 0


def test_going_back_needs_a_yes(folder: Path):
    refused = phalanx(folder, "repair", "--to-image")
    assert refused.returncode == 6
    assert "would be forgotten" in refused.stderr
    assert phalanx(folder, "check").returncode == 1
    assert phalanx(folder, "repair", "--to-image", "--yes").returncode == 0
    assert phalanx(folder, "check").returncode == 0


def test_a_damaged_log_is_not_copied_as_if_it_were_whole(folder: Path):
    kept = phalanx(folder, "backup", str(folder / "copy.bak"))
    assert (kept.returncode, "hole" in kept.stderr) == (69, True)
    assert not (folder / "copy.bak").exists()
    moved = phalanx(folder, "migrate", "sqlite:", f"sqlite:{folder / 'other.db'}")
    assert (moved.returncode, "hole" in moved.stderr) == (6, True)
    store = SqliteStore(folder / "coordinator" / "phalanx.db", read_only=True)
    assert asyncio.run(store.leader()) is None, "and no coordinator is fenced off"
