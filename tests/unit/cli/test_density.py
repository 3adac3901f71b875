"""`phalanx density plot`: in the terminal, as PNG and SVG, and what it says of a file that is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from phalanx.cli.density import BLOCKS, PLAIN_BLOCKS, chart, plot, read_density
from phalanx.coordinator.metrics.density import Density
from phalanx.errors import BadRequest, ConfigError

MINUTE = 1_760_000_040.0


def document() -> dict[str, Any]:
    density = Density(60.0)
    for minute, tasks in enumerate((2, 8, 0, 4)):
        density.submitted(MINUTE + 60 * minute, tasks)
        density.counted(MINUTE + 60 * minute, 1 + minute)
    density.end(MINUTE + 240)
    return density.document(MINUTE + 240)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "task_worker_density.json"
    made.write_text(json.dumps(document()))
    return made


def test_the_charts_have_the_highest_where_it_was(file: Path):
    lines = list(chart(read_density(file), 59, BLOCKS))
    tasks, nodes = lines[1:9], lines[11:19]
    assert lines[0] == "Tasks submitted per minute (at most 8)"
    assert tasks[0] == f"{8:8} " + " " * 10 + "█" * 10  # five intervals of ten columns, the second is full
    assert tasks[-1][9:] == "█" * 20 + " " * 10 + "█" * 10
    assert tasks[4][9:] == " " * 10 + "█" * 10 + " " * 10 + "█" * 10
    assert nodes[0].startswith(f"{4:8} ")
    assert nodes[-1][9:] == "█" * 50


def test_a_terminal_that_knows_only_ascii(file: Path):
    text = "\n".join(chart(read_density(file), 59, PLAIN_BLOCKS))
    assert text.isascii()
    assert "#" * 10 in text


def test_without_output_it_is_printed(file: Path, capsys: pytest.CaptureFixture[str]):
    plot(file)
    assert "Tasks submitted per minute (at most 8)" in capsys.readouterr().out


def test_png_and_svg(file: Path, tmp_path: Path):
    plot(file, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    plot(file, tmp_path / "out.svg")
    root = ET.parse(tmp_path / "out.svg").getroot()
    assert root.tag.endswith("svg")
    bars = [each for each in root.iter() if each.get("id", "").startswith("patch_")]
    assert len(bars) >= 5


def test_without_matplotlib_the_error_says_what_to_install(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.dates", None)
    monkeypatch.delitem(sys.modules, "phalanx.cli.density_picture", raising=False)
    with pytest.raises(ConfigError, match="needs matplotlib, which is not installed") as refused:
        plot(file, tmp_path / "out.png")
    assert "pip install 'phalanx[plot]'" in refused.value.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (b"{", "is not a density file: Input data was truncated"),
        (b"[]", "is not a density file: Expected `object`, got `array`"),
        (b"{}", "missing required field `generated_at`"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(file: Path, change: bytes, said: str):
    file.write_bytes(change)
    with pytest.raises(BadRequest, match=said):
        plot(file)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("bucket_seconds", 0, r"> 0.*bucket_seconds"),
        (
            "task_density_buckets",
            [{"bucket_start": "now"}],
            r"task_density_buckets\[0\]\.bucket_start|bucket_start",
        ),
        ("worker_count_series", [{"ts": "2025-10-09T08:54:00", "active_workers": 1}], "timezone"),
    ],
)
def test_a_wrong_value_is_named(file: Path, field: str, value: object, said: str):
    file.write_text(json.dumps(document() | {field: value}))
    with pytest.raises(BadRequest, match=said):
        plot(file)


def test_a_missing_file_an_empty_one_and_another_format(file: Path, tmp_path: Path):
    with pytest.raises(BadRequest, match=r"cannot read .*nothing\.json: No such file"):
        plot(tmp_path / "nothing.json")
    with pytest.raises(BadRequest, match=r"expected a file that ends in \.png or \.svg"):
        plot(file, tmp_path / "out.pdf")
    with pytest.raises(BadRequest, match=r"cannot write .*: No such file"):
        plot(file, tmp_path / "none" / "out.png")
    file.write_text(json.dumps(Density().document(1.0)))
    with pytest.raises(BadRequest, match="has no samples yet"):
        plot(file)


def test_one_sample_alone_can_be_drawn(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    density = Density(60.0)
    density.counted(MINUTE, 2)
    file.write_text(json.dumps(density.document(MINUTE)))
    plot(file)
    assert "Active nodes (at most 2)" in capsys.readouterr().out
    plot(file, tmp_path / "one.svg")
