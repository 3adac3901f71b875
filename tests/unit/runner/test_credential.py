"""What a runner shows: the token it started with, then the credential of its node."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import TokenError
from phalanx.runner.credential import NodeCredential


def a_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def started(folder: Path, node: str = "n1", **variables: str) -> NodeCredential:
    flags = {"runner.name": node, "runner.state_dir": folder / "state", "state_dir": folder}
    (folder / "state").mkdir(exist_ok=True)
    return NodeCredential(load(flags, environment={"HOME": str(folder)} | variables, folder=folder))


def joined(folder: Path) -> Path:
    """A node that exchanged the join token in this file for a credential."""
    file = a_file(folder / "t", "join-1")
    runner = started(folder, PHALANX_RUNNER_TOKEN_FILE=str(file))
    assert runner.shown() == "join-1"
    runner.keep("own-1")
    assert runner.shown() == "own-1"
    return file


def test_the_file_is_read_anew_for_every_connection(tmp_path: Path):
    file = a_file(tmp_path / "t", "a")
    runner = started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file))
    seen = [runner.shown()]
    a_file(file, "b,c")
    seen.append(runner.shown())
    file.unlink()
    assert [*seen, runner.shown()] == ["a", "b", "b"]


def test_the_credential_is_kept_for_us_alone_and_shown_after_a_restart(tmp_path: Path):
    file = joined(tmp_path)
    assert oct((tmp_path / "state" / "credential").stat().st_mode & 0o777) == "0o600"
    assert started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file)).shown() == "own-1"
    file.unlink()  # a join token is used up
    assert started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file)).shown() == "own-1"


def test_a_token_that_was_given_later_is_a_new_beginning(tmp_path: Path):
    file = a_file(joined(tmp_path), "join-2")
    again = started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file))
    assert again.shown() == "join-2"
    again.keep("own-2")
    assert started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file)).shown() == "own-2"


def test_the_credential_of_another_name_is_not_shown(tmp_path: Path):
    file = joined(tmp_path)
    assert started(tmp_path, "n2", PHALANX_RUNNER_TOKEN_FILE=str(file)).shown() == "join-1"


@pytest.mark.parametrize("fault", ["missing", "empty", "readable"])
def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path, fault: str):
    file = tmp_path / "t"
    if fault != "missing":
        a_file(file, "" if fault == "empty" else "a", 0o646 if fault == "readable" else 0o600)
    with pytest.raises(TokenError):
        started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file)).shown()


def readable(path: Path) -> None:
    path.chmod(0o646)


def garbage(path: Path) -> None:
    path.write_text('{"node":')


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").touch()


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("plant", [readable, garbage, endless, a_folder, a_fifo, a_loop])
def test_what_is_put_in_place_of_the_credential_keeps_no_runner_with_a_token_from_starting(
    tmp_path: Path, plant: Callable[[Path], None]
):
    file = joined(tmp_path)
    plant(tmp_path / "state" / "credential")
    again = started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file))
    assert again.shown() == "join-1"
    again.keep("own-2")
    assert started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file)).shown() == "own-2"


@pytest.mark.parametrize(
    ("plant", "said"), [(readable, "others may use"), (garbage, "holds no credential of a node")]
)
def test_a_credential_that_cannot_be_used_ends_the_start_if_there_is_no_token(
    tmp_path: Path, plant: Callable[[Path], None], said: str
):
    file = joined(tmp_path)
    file.unlink()
    plant(tmp_path / "state" / "credential")
    with pytest.raises(TokenError, match=said) as caught:
        started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file))
    assert caught.value.hint


def test_the_variable_of_seed_001_is_shown(tmp_path: Path):
    assert started(tmp_path, KRISHIV_EXECUTOR_TASK_BEARER_TOKEN="of-all").shown() == "of-all"


def test_of_equally_strong_sources_the_file_is_taken(tmp_path: Path):
    file = a_file(tmp_path / "t", "from-file")
    both = {"PHALANX_RUNNER_TOKEN": "from-value", "PHALANX_RUNNER_TOKEN_FILE": str(file)}
    assert started(tmp_path, **both).shown() == "from-file"
    weaker = {"KRISHIV_EXECUTOR_TASK_BEARER_TOKEN": "from-value", "PHALANX_RUNNER_TOKEN_FILE": str(file)}
    assert started(tmp_path, **weaker).shown() == "from-file"
