"""The index of a task in the command of an array without parameters: `{i}` and nothing else is replaced."""

from __future__ import annotations

import pytest

from phalanx.core.model.template import index_in_program, with_index


def test_every_index_in_a_command_is_replaced():
    argv = ("./run-{i}", "--out", "a{i}/b{i}", "plain")
    assert with_index(argv, 12) == ["./run-12", "--out", "a12/b12", "plain"]


@pytest.mark.parametrize(
    "word", ["{}", "{lr}", "${i}", "{{i}}", "{I}", "{i:3}", "{ i }", "{", '{"i": 1}', "i"]
)
def test_all_other_braces_stay(word: str):
    assert with_index(("train", word), 3) is None
    assert with_index(("train", word, "{i}"), 3) == ["train", word, "3"]


@pytest.mark.parametrize("argv", [("sh", "-c", "echo {i}"), ("python", "-c", "i = 1; print(f'{i}')")])
def test_program_code_stays_and_is_named(argv: tuple[str, ...]):
    assert with_index(argv, 3) is None
    assert index_in_program(argv) == 2


def test_code_of_a_shell_with_a_variable_of_its_own_is_not_named():
    assert index_in_program(("sh", "-c", "echo ${i}")) is None
    assert index_in_program(("echo", "{i}")) is None
