"""The systemd units: what tasks depend on is in them, and systemd itself finds nothing wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

UNITS = ("phalanx-coordinator", "phalanx-runner")
FOLDER = ROOT / "deploy/systemd"


def a_unit(name: str) -> ConfigParser:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / f"{name}.service")
    return unit


def test_a_restart_of_the_runner_leaves_its_tasks():
    service = a_unit("phalanx-runner")["Service"]
    assert (service["KillMode"], service["Delegate"], service["OOMPolicy"]) == ("process", "yes", "continue")


def test_no_task_runs_as_the_coordinators_account():
    users = {name: a_unit(name)["Service"]["User"] for name in UNITS}
    assert len(set(users.values())) == 2
    accounts = [
        line.split()[1] for line in (FOLDER / "phalanx.sysusers").read_text().splitlines() if line[0] == "u"
    ]
    assert sorted(accounts) == sorted(users.values())


@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong(name: str, tmp_path: Path):
    if (analyze := shutil.which("systemd-analyze")) is None:
        return  # scripts/systemd asks it in `make soak`
    text = (FOLDER / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/usr/bin/phalanx", str(Path(sys.executable).parent / "phalanx")))
    run = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
