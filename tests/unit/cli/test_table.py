"""Tables and text: aligned, whole, and harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from phalanx.api.schema.cluster import DeviceView, NodeView
from phalanx.cli.node import node_lines
from phalanx.cli.output import (
    Table,
    clean,
    clean_lines,
    coloured,
    console_for,
    emit,
    moment,
    plain_lines,
    span,
)


def test_columns_line_up():
    assert list(plain_lines([["A", "BB", "C"], ["aaaa", "b", "c c"], ["a", "", ""]])) == [
        "A     BB  C\n",
        "aaaa  b   c c\n",
        "a\n",
    ]


def test_a_narrow_terminal_cuts_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("ID", "STATUS", "REASON")
    table.add("i" * 30, "Pending", "word " * 30)
    drawn = _drawn(table)
    assert "i" * 30 in drawn
    assert drawn.count("word") == 30
    assert "…" not in drawn


def test_markup_in_a_cell_is_only_text():
    table = Table("NAME", "COMMAND")
    table.add("[red]x[/red]", "[bold]")
    assert "[red]x[/red]" in _drawn(table)
    assert "[bold]" in _drawn(table)


def test_on_a_terminal_the_status_has_a_colour(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table("ID", "STATUS")
    table.add("1", "Running")
    console = Console(force_terminal=True, color_system="standard", width=80)
    with console.capture() as kept:
        console.print(coloured(table))
    assert "\x1b[32mRunning" in kept.get()


def _drawn(table: Table) -> str:
    console = console_for(table)
    with console.capture() as kept:
        console.print(coloured(table))
    return kept.get()


@pytest.mark.parametrize(
    ("given_text", "left"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\y", "y"),
        ("\x1b(0a", "a"),
        ("a\x1b", "a"),
        ("\x9b31mred", "red"),
        ("one\r\n\ttwo", "one two"),
        ("\x00\x08\x7fa", "a"),
        ("abc\u202ecba\u2066", "abccba"),
        ("ünïcödé 日本", "ünïcödé 日本"),
    ],
)
def test_what_is_left_of_a_text(given_text: str, left: str):
    assert clean(given_text) == left


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b\x9b[]m;\x07\\P\n\u202e"))))
def test_no_control_character_survives(text: str):
    kept = clean(text)
    assert kept.isprintable() or all(ord(each) >= 0xA0 for each in kept if not each.isprintable())
    assert "\x1b" not in clean_lines(text)


def test_times_and_spans():
    assert (moment(None), span(None, 1.0), span(1.0, None), span(5.0, 1.0)) == ("-", "-", "-", "0.0s")
    assert moment(1000.0).split()[:2] != moment(1000.0).split(), "with its zone"


def test_lines_and_names_are_as_harmless_as_tables(capsys: pytest.CaptureFixture[str]):
    words = "h100\x1b[2J\x1b]0;owned\x07"
    emit({}, "table", [], lambda _: [f"  GPU 0  {words}", "two\nlines"])
    emit({}, "name", [words], lambda _: [])
    assert capsys.readouterr().out == "  GPU 0  h100\ntwo\nlines\nh100\n"


def test_a_kind_of_gpu_stays_in_its_line(capsys: pytest.CaptureFixture[str]):
    device = DeviceView(0, "h100\n  GPU 1  forged", 0)
    node = NodeView("n1", "Online", False, "", 4, 4, 0, 0, [], [device], {}, [], 0, "i", None)
    emit(node, "table", [], lambda _: node_lines(node))
    assert capsys.readouterr().out.splitlines()[-1].startswith("  GPU 0  h100   GPU 1  forged")
