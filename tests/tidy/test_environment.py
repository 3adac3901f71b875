"""Settings come in through one file, and so does the time.

Only `config.py` reads the environment; everyone else is handed a `Config`. Only `clock.py` reads the clock;
everyone else is handed a `Clock`. The keeper has no imports of ours, so it may read the clock itself.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tests.tidy.source import ROOT, Source, a_tree, mentions, sources

ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}
# The process of a container passes its own environment on, which is the task's, and reads nothing of it.
ENVIRONMENT_READERS = {"src/phalanx/config.py", "src/phalanx/runner/containers/process.py"}

CLOCKS = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns"),
    *("time.perf_counter", "time.perf_counter_ns", "time.clock_gettime", "time.clock_gettime_ns"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
}
CLOCK_READERS = {"src/phalanx/clock.py", "src/phalanx/runner/keeper/system.py"}


def environment_violations(found: tuple[Source, ...]) -> list[str]:
    return _uses(found, ENVIRONMENT, ENVIRONMENT_READERS, "only config.py reads the environment")


def clock_violations(found: tuple[Source, ...]) -> list[str]:
    return _uses(found, CLOCKS, CLOCK_READERS, "only clock.py reads the clock")


def _uses(
    found: tuple[Source, ...], forbidden: Collection[str], readers: Collection[str], rule: str
) -> list[str]:
    return [
        source.at(line, f"{name}: {rule}")
        for source in found
        if source.path not in readers
        for line, name in mentions(source)
        if name in forbidden
    ]


def test_only_config_reads_the_environment():
    assert environment_violations(sources(ROOT, "src")) == []


def test_only_clock_reads_the_clock():
    assert clock_violations(sources(ROOT, "src")) == []


def test_reading_the_environment_is_seen_under_any_name(tmp_path: Path):
    text = "import os as o\no.environ['A']\no.path.join('a')\nfrom os import getenv as g\ng('A')\n"
    a_tree(tmp_path, {"src/phalanx/runner/keeper.py": text, "src/phalanx/config.py": text})
    lines = {line.split(": ")[0] for line in environment_violations(sources(tmp_path, "src"))}
    assert lines == {f"src/phalanx/runner/keeper.py:{line}" for line in (2, 4, 5)}


def test_reading_the_clock_is_seen_under_any_name(tmp_path: Path):
    text = (
        "import time\nfrom datetime import datetime as dt\ntime.monotonic()\ndt.now()\ntime.strftime('%H')\n"
    )
    a_tree(tmp_path, {"src/phalanx/store/a.py": text, "src/phalanx/clock.py": text})
    lines = {line.split(": ")[0] for line in clock_violations(sources(tmp_path, "src"))}
    assert lines == {"src/phalanx/store/a.py:3", "src/phalanx/store/a.py:4"}
