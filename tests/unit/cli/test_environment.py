"""`-e`, `--env-file` and `--export`: what they say, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from phalanx.cli.environment import exported_variables, given_variables
from phalanx.cli.submit import SubmitOptions
from phalanx.errors import BadRequest


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("MINE", "here")


def a_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "vars.env"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_has_variables_comments_and_names(tmp_path):
    text = '# a comment\n\nA=1\nexport B = two words \nC=\'in quotes\'\nD="x=y"\nE=\nMINE\nF="\n'
    assert given_variables(None, [a_file(tmp_path, text)]) == {
        "A": "1", "B": "two words", "C": "in quotes", "D": "x=y", "E": "", "MINE": "here", "F": '"',
    }  # fmt: skip


def test_an_option_is_stronger_than_a_file_and_passes_a_variable_through(tmp_path):
    file = a_file(tmp_path, "A=1\nB=1\n")
    assert given_variables(["A=2", "MINE"], [file]) == {"A": "2", "B": "1", "MINE": "here"}


@pytest.mark.parametrize("text", ["=1", "a b=1", "\x1b[2J=1"])
def test_what_is_no_variable_is_refused(tmp_path, text):
    with pytest.raises(typer.BadParameter):
        given_variables([text], None)
    with pytest.raises(typer.BadParameter) as no:
        given_variables(None, [a_file(tmp_path, f"A=1\n{text}\n")])
    assert str(no.value.param_hint).endswith("vars.env:2")


def test_a_variable_that_is_not_set_here_is_refused():
    with pytest.raises(BadRequest, match="NOT_SET_AT_ALL"):
        given_variables(["NOT_SET_AT_ALL"], None)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path / "none.env", tmp_path, a_file(tmp_path, b"\xff=1")):
        with pytest.raises(BadRequest, match=path.name):
            given_variables(None, [path])
    with pytest.raises(BadRequest, match="longer than"):
        given_variables(None, [a_file(tmp_path, b"A" * ((1 << 20) + 1))])


def test_a_submission_has_this_shells_environment_unless_it_says_otherwise():
    assert SubmitOptions(command=["x"]).request().exported["MINE"] == "here"
    assert SubmitOptions(command=["x"], export="NONE").request().exported == {}
    assert SubmitOptions(command=["x"], export="MINE").request().exported == {"MINE": "here"}
    assert SubmitOptions(command=["x"], image="busybox").request().exported == {}
    assert "PATH" not in SubmitOptions(command=["x"], image="busybox", export="ALL").request().exported


def test_what_is_not_utf_8_is_left_out_and_said(monkeypatch, capsys):
    monkeypatch.setenv("ODD", "caf\udce9")
    assert "ODD" not in exported_variables(None)
    assert "ODD" in capsys.readouterr().err
