"""What is advised about a command that its node could not start."""

from __future__ import annotations

import pytest

from phalanx.core.explain.attempts import _fix_refused
from phalanx.core.model.job import Command


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (Command(("echo hi; sleep 1",)), "put --shell before it"),
        (Command(("echo hi",), image="rootfs:/data/box"), "put --shell before it"),
        (Command(("train.py",), image="rootfs:/data/box"), "check that the image is there"),
        (Command(("my program", "-x")), "check that the program and the folder exist"),
        (Command(("trian.py",)), "check that the program and the folder exist"),
    ],
    ids=["one string", "one string in a container", "in a container", "a space in its name", "misspelt"],
)
def test_the_advice_is_about_what_was_given(command: Command, advice: str):
    assert advice in _fix_refused(command).text
