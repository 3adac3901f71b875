"""`phalanx store …` on real files: its output, its refusals, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path

from phalanx.core.cluster.events import TermOpened, encode
from phalanx.store.protocol import Batch, Candidate, Leader
from phalanx.store.sqlite.store import SqliteStore
from tests.support.fake_client import Cli


def a_store(path: Path, terms: int = 5, holder: str = "") -> Path:
    """A store in which so many terms were opened, and nothing else happened."""

    async def fill() -> None:
        store = SqliteStore(path)
        epoch = (await store.elect(Candidate(holder or "ada"), 3600.0)).epoch
        for revision in range(1, terms + 1):
            body = encode([TermOpened(at=1.0, cause="test", epoch=epoch)])
            await store.append(epoch, Batch(revision, body, ("n1",)), [])
        if not holder:
            await store.resign(epoch)
        await store.close()

    asyncio.run(fill())
    return path


def leader_of(path: Path) -> Leader | None:
    async def ask() -> Leader | None:
        store = SqliteStore(path)
        found = await store.leader()
        await store.close()
        return found

    return asyncio.run(ask())


def test_a_good_store_is_called_good(cli: Cli, away: Path):
    said = cli("store", "check", f"sqlite:{a_store(away / 'a.db')}")
    assert said.code == 0, said.err
    assert "State:     good" in said.out
    assert "5 batches after 0" in said.out


def test_a_damaged_record_is_named_and_ends_with_1(cli: Cli, away: Path):
    path = a_store(away / "a.db")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE log SET crc = crc + 1 WHERE revision = 3")
    said = cli("store", "check", f"sqlite:{path}")
    assert said.code == 1
    assert "DAMAGED" in said.out
    assert "damaged: log 3" in said.out
    again = cli("store", "check", f"sqlite:{path}", "-o", "json")
    assert again.code == 1, "looking changed nothing"
    assert json.loads(again.out)["damaged"] == [{"source": "log", "key": "3", "set_aside": False}]


def test_a_record_that_cannot_be_decoded_is_damaged_too(cli: Cli, away: Path):
    async def spoil(path: Path) -> None:
        store = SqliteStore(path)
        await store.append(await store.open_term(), Batch(9, b"\xc1 no events"), [])
        await store.close()

    path = a_store(away / "a.db")
    asyncio.run(spoil(path))
    assert "damaged: log 9" in cli("store", "check", f"sqlite:{path}").out


def test_without_an_address_it_is_the_store_of_the_settings(cli: Cli, away: Path):
    (away / "state" / "coordinator").mkdir(parents=True)
    a_store(away / "state" / "coordinator" / "phalanx.db")
    assert cli("--state", str(away / "state"), "store", "check").code == 0


def test_looking_for_a_store_makes_none(cli: Cli, away: Path):
    said = cli("store", "check", f"sqlite:{away / 'none.db'}")
    assert said.code == 5
    assert "there is no store at" in said.err
    assert list(away.iterdir()) == []


def test_a_file_in_which_nothing_was_ever_kept_is_no_store(cli: Cli, away: Path):
    (away / "empty.db").touch()
    assert cli("store", "check", f"sqlite:{away / 'empty.db'}").code == 5


def test_a_file_that_is_no_database_is_damaged(cli: Cli, away: Path):
    (away / "a.db").write_bytes(b"not a database, whatever its name says" * 100)
    said = cli("store", "check", f"sqlite:{away / 'a.db'}")
    assert said.code == 1
    assert "not a database" in said.err


def test_a_backup_that_cannot_be_written_names_its_file(cli: Cli, away: Path):
    path = a_store(away / "a.db")
    said = cli("store", "backup", f"sqlite:{path}", f"{away}/nowhere/a.bak")
    assert said.code == 2
    assert f"{away}/nowhere/a.bak cannot be written: there is no folder {away}/nowhere" in said.err


def test_what_was_backed_up_is_restored(cli: Cli, away: Path):
    path = a_store(away / "a.db")
    kept = cli("store", "backup", f"sqlite:{path}", "a.bak", "-o", "json")
    assert kept.code == 0, kept.err
    assert json.loads(kept.out)["batches"] == 5
    assert (away / "a.bak").stat().st_mode & 0o777 == 0o600
    back = cli("store", "restore", "a.bak", f"sqlite:{away / 'b.db'}")
    assert back.code == 0, back.err
    checked = json.loads(cli("store", "check", f"sqlite:{away / 'b.db'}", "-o", "json").out)
    assert (checked["revision"], checked["batches"], checked["damaged"]) == (6, 6, []), (
        "with the numbers that are not given again"
    )
    assert checked["epoch"] > 1_000_000


def test_a_backup_is_not_replaced_without_force(cli: Cli, away: Path):
    path = a_store(away / "a.db")
    (away / "a.bak").write_text("mine")
    said = cli("store", "backup", f"sqlite:{path}", "a.bak")
    assert said.code == 6
    assert "--force" in said.err
    assert (away / "a.bak").read_text() == "mine"
    assert cli("store", "backup", f"sqlite:{path}", "a.bak", "--force").code == 0


def test_nothing_is_restored_over_a_cluster(cli: Cli, away: Path):
    path = a_store(away / "a.db")
    assert cli("store", "backup", f"sqlite:{path}", "a.bak").code == 0
    said = cli("store", "restore", "a.bak", f"sqlite:{path}")
    assert said.code == 6
    assert "is not empty" in said.err


def test_what_is_no_backup_is_refused_before_anything_is_written(cli: Cli, away: Path):
    (away / "a.bak").write_bytes(b"something else")
    said = cli("store", "restore", "a.bak", f"sqlite:{away / 'b.db'}")
    assert said.code == 2
    assert "is not a whole backup" in said.err
    assert not (away / "b.db").exists()


def test_a_cluster_moves_and_leaves_its_new_address(cli: Cli, away: Path):
    old, new = a_store(away / "a.db"), away / "b.db"
    said = cli("store", "migrate", f"sqlite:{old}", f"sqlite:{new}", "-o", "json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["batches"] == 5
    left = leader_of(old)
    assert left is not None and left.candidate.name == f"migrated-to:sqlite:{new}"
    assert cli("store", "check", f"sqlite:{new}").code == 0
    assert leader_of(new) is None
    assert cli("store", "reopen", f"sqlite:{old}").code == 0
    assert leader_of(old) is None


def test_a_cluster_in_use_is_not_moved_by_accident(cli: Cli, away: Path):
    old = a_store(away / "a.db", holder="bob")
    said = cli("store", "migrate", f"sqlite:{old}", f"sqlite:{away / 'b.db'}")
    assert said.code == 6
    assert "coordinator bob is active" in said.err
    assert "--force" in said.err


def test_a_migration_from_nowhere_or_to_itself_or_to_memory_is_refused(cli: Cli, away: Path):
    path = a_store(away / "a.db")
    for words, expected in (
        ((f"sqlite:{away / 'none.db'}", "sqlite:b.db"), "there is no store at"),
        ((f"sqlite:{path}", f"sqlite:{path}"), "FROM and TO are both"),
        ((f"sqlite:{path}", "memory:"), "neither source nor target"),
        ((f"sqlite:{path}", "mysql://db"), "expected sqlite:PATH"),
        ((f"sqlite:{path}", "etcd://root:secret@h:2379"), "no user and no password"),
    ):
        said = cli("store", "migrate", *words)
        assert said.code != 0
        assert expected in said.err
        assert "secret" not in said.err
    assert sorted(each.name for each in away.iterdir()) == ["a.db"]


def test_what_another_store_of_the_state_folder_knew_is_no_loss(cli: Cli, away: Path):
    """The default folder belongs to another cluster, which was at epoch 12."""
    folder = away / "state" / "coordinator"
    folder.mkdir(parents=True)
    (folder / "epoch-seen").write_text(f"{12:020} {90:020}\n")
    path = a_store(away / "shared.db")
    said = cli("--state", str(away / "state"), "store", "repair", f"sqlite:{path}")
    assert (said.code, "lost" in said.out) == (0, False), said
    said = cli("--state", str(away / "state"), "store", "repair", f"sqlite:{path}", "--accept-loss", "--yes")
    assert said.code == 6
    assert json.loads(cli("store", "check", f"sqlite:{path}", "-o", "json").out)["epoch"] == 1
    a_store(folder / "phalanx.db")
    assert "what came after is lost" in cli("--state", str(away / "state"), "store", "repair").out


def test_a_backup_takes_the_place_of_no_pipe_or_device(cli: Cli, away: Path):
    os.mkfifo(away / "pipe")
    said = cli("store", "backup", f"sqlite:{a_store(away / 'a.db')}", str(away / "pipe"), "--force")
    assert said.code == 2
    assert (away / "pipe").is_fifo()
    (away / "link").symlink_to("newest.bak")
    assert cli("store", "backup", f"sqlite:{away / 'a.db'}", str(away / "link")).code == 0
    assert (away / "link").is_symlink()
    assert (away / "newest.bak").stat().st_mode & 0o777 == 0o600
