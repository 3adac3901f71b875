"""What is advised about a command that its node could not start."""

from __future__ import annotations

import pytest

from phalanx.core.explain.attempts import _UNSET, _fix_refused
from phalanx.core.model.job import Command


@pytest.mark.parametrize(
    ("command", "message", "advice"),
    [
        (Command(("echo hi; sleep 1",)), "no program", "put --shell before it"),
        (Command(("echo hi",), image="rootfs:/data/box"), "", "put --shell before it"),
        (Command(("train.py",), image="rootfs:/data/box"), "no program", "check that the image is there"),
        (
            Command(("./my program", "-x")),
            "no program ./my program",
            "check that the program and the folder exist",
        ),
        (
            Command(("trian.py",)),
            "no program 'trian.py' in its PATH, on node n1",
            "PATH it was submitted with",
        ),
        (
            Command(("true",)),
            "its environment cannot be opened: it takes the secret",
            "coordinator.secret_file",
        ),
        (Command(("true",)), "working directory /x: No such file or directory, on node n1", "--cwd"),
    ],
    ids=[
        "one string",
        "one string in a container",
        "in a container",
        "by its path",
        "misspelt",
        "secret gone",
        "no folder",
    ],
)
def test_the_advice_is_about_what_was_given(command: Command, message: str, advice: str):
    assert advice in _fix_refused(command, message).text


@pytest.mark.parametrize(
    ("last_lines", "variable"),
    [
        ("KeyError: 'RANK'", "RANK"),
        ("KeyError: 'LOCAL_RANK'\n", "LOCAL_RANK"),
        ("KeyError: 'WORLD_SIZE'", "WORLD_SIZE"),
        (
            "ValueError: env:// rendezvous: environment variable RANK expected, but not set",
            "RANK",
        ),
        ("KeyError: 'rank'", None),
        ("KeyError: 'PAGERANK'", None),
    ],
)
def test_a_variable_that_torchrun_sets_is_known_from_the_last_lines(last_lines: str, variable: str | None):
    found = _UNSET.search(last_lines)
    assert (found and (found[1] or found[2])) == variable
