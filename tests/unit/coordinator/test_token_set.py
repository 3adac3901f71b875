"""Accepted sets out of settings: a value, a list, and a file that changes while the coordinator runs (C38, S1, S4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from phalanx.api.server.auth import fingerprint
from phalanx.coordinator.credentials import Credentials
from phalanx.errors import ConfigError, TokenError
from tests.support.token_files import a_file, names, opened


def test_the_accepted_set_is_the_union_of_value_list_and_file(tmp_path: Path):
    file = a_file(tmp_path / "t", "c, d\ne\n\n")
    found = opened(
        tmp_path, coordinator__token="a", coordinator__tokens="b1,b2\nb3", coordinator__token_file=file
    )
    assert names(found, "a", "b1", "b2", "b3", "c", "d", "e") == [True] * 7
    assert names(found, "b1,b2", "c, d", "x", "") == [False] * 4
    assert {found.accepts_user(token).role for token in ("a", "b1", "c")} == {"admin"}  # type: ignore[union-attr]


def test_without_any_setting_both_files_and_the_secret_are_made_for_us_alone(tmp_path: Path):
    found = opened(tmp_path)
    files = [tmp_path / name for name in ("credentials", "node-credentials", "cluster-secret")]
    assert [oct(file.stat().st_mode & 0o777) for file in files] == ["0o600"] * 3
    texts = [file.read_text().strip() for file in files]
    assert all(text.startswith("phx_") and len(text) == 47 for text in texts)
    assert names(found, *texts) == [True, True, False]
    assert [found.accepts_user(text).role for text in texts[:2]] == ["admin", "node"]  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["coordinator__token_file", "coordinator__node_token_file"])
@pytest.mark.parametrize("text", ["", "\n, ,\n", "two words", None])
def test_a_file_that_was_named_and_cannot_be_used_is_fatal(tmp_path: Path, key: str, text: str | None):
    if text is not None:
        a_file(tmp_path / "t", text)
    with pytest.raises(TokenError):
        opened(tmp_path, **{key: tmp_path / "t"})  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666])
def test_a_file_that_others_may_use_is_fatal_at_the_start(tmp_path: Path, mode: int):
    with pytest.raises(TokenError, match="others may use"):
        opened(tmp_path, coordinator__token_file=a_file(tmp_path / "t", "a", mode))


@pytest.mark.parametrize("text", [",", " , ,"])
def test_a_list_that_holds_no_token_is_fatal_and_no_reason_to_make_one(tmp_path: Path, text: str):
    with pytest.raises(ConfigError, match=r"coordinator\.tokens is set and holds no token"):
        opened(tmp_path, coordinator__tokens=text)
    assert not (tmp_path / "credentials").exists()


def test_a_token_for_users_and_runners_alike_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="users and from runners"):
        opened(tmp_path, coordinator__token="same", coordinator__node_token="same")


def test_c38_a_file_is_read_again(tmp_path: Path):
    file = a_file(tmp_path / "t", "A")
    found = opened(tmp_path, coordinator__token_file=file)
    seen = []
    for text in ("A", "A,B", "B", ""):
        a_file(file, text)
        found.reload()
        seen.append(names(found, "A", "B"))
    assert seen == [[True, False], [True, True], [False, True], [False, False]]


def test_c38_a_file_that_cannot_be_read_leaves_the_set_as_it_was(tmp_path: Path, caplog):
    file = a_file(tmp_path / "t", "A")
    found = opened(tmp_path, coordinator__token_file=file)
    a_file(file, "B", 0o646)
    assert (found.reload(), names(found, "A", "B")) == (False, [True, False])
    file.unlink()
    assert (found.reload(), names(found, "A", "B")) == (False, [True, False])
    assert len([line for line in caplog.messages if "not reloaded" in line]) == 2
    a_file(file, "B")
    assert (found.reload(), names(found, "A", "B")) == (True, [False, True])


def test_a_reload_that_would_make_runners_admins_is_not_taken(tmp_path: Path):
    file = a_file(tmp_path / "t", "A")
    found = opened(tmp_path, coordinator__token_file=file, coordinator__node_token="N")
    a_file(file, "A,N")
    assert not found.reload()
    assert found.accepts_user("N").role == "node"  # type: ignore[union-attr]


def test_no_token_stands_in_the_log(tmp_path: Path, caplog):
    caplog.set_level("DEBUG")
    file = a_file(tmp_path / "t", "planted-a")
    found = opened(tmp_path, coordinator__token_file=file)
    a_file(file, "planted-b")
    found.reload()
    assert fingerprint("planted-b") in caplog.text
    assert "planted" not in caplog.text


async def changed(found: Credentials) -> None:
    """Wait until the sets have changed, as connections do."""
    told = asyncio.Event()
    keeping = asyncio.ensure_future(found.keep(lambda envelope: None, (told.set,)))
    try:
        async with asyncio.timeout(4.5):  # less than the interval of a periodic look
            await told.wait()
    finally:
        keeping.cancel()


@pytest.mark.anyio
async def test_the_interval_and_a_hangup_both_lead_to_a_new_look(tmp_path: Path):
    file = a_file(tmp_path / "t", "A")
    often = opened(tmp_path, coordinator__token_file=file, coordinator__auth_reload_interval_s=0.05)
    seldom = opened(tmp_path, coordinator__token_file=file, coordinator__auth_reload_interval_s=3600)
    a_file(file, "B")
    await changed(often)
    assert names(often, "A", "B") == [False, True]
    seldom.reload_soon()
    await changed(seldom)
    assert names(seldom, "A", "B") == [False, True]
