"""What a runner shows: what it was given to begin with, then the credential of its node."""

from __future__ import annotations

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
    """A node that gave the join token in this file for a credential."""
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


def test_a_credential_that_others_may_read_ends_the_start(tmp_path: Path):
    file = joined(tmp_path)
    (tmp_path / "state" / "credential").chmod(0o646)
    with pytest.raises(TokenError, match="others may use"):
        started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file))


def test_a_damaged_credential_ends_the_start_and_says_what_to_do(tmp_path: Path):
    file = joined(tmp_path)
    (tmp_path / "state" / "credential").write_text('{"node":')
    with pytest.raises(TokenError) as caught:
        started(tmp_path, PHALANX_RUNNER_TOKEN_FILE=str(file))
    assert "join again" in caught.value.hint


def test_the_variable_of_seed_001_is_shown(tmp_path: Path):
    assert started(tmp_path, KRISHIV_EXECUTOR_TASK_BEARER_TOKEN="of-all").shown() == "of-all"


def test_of_equally_strong_sources_the_file_is_taken(tmp_path: Path):
    file = a_file(tmp_path / "t", "from-file")
    both = {"PHALANX_RUNNER_TOKEN": "from-value", "PHALANX_RUNNER_TOKEN_FILE": str(file)}
    assert started(tmp_path, **both).shown() == "from-file"
    weaker = {"KRISHIV_EXECUTOR_TASK_BEARER_TOKEN": "from-value", "PHALANX_RUNNER_TOKEN_FILE": str(file)}
    assert started(tmp_path, **weaker).shown() == "from-file"
