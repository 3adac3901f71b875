"""The output of the command: one seed, one sentence, one command to repeat it."""

from __future__ import annotations

import pytest

from phalanx.sim.main import main
from phalanx.sim.world import TAIL_LINES
from phalanx.store.memory import MemoryStore
from tests.simulation.test_planted_bugs import anywhere

pytestmark = pytest.mark.timeout(300)


def test_a_good_seed_prints_the_hash_of_its_trace(capsys: pytest.CaptureFixture[str]):
    assert main(["--seed", "4", "--faults", "crash"]) == 0
    assert "seed 4: trace " in capsys.readouterr().out


def test_a_trace_tells_the_story_of_one_seed(capsys: pytest.CaptureFixture[str]):
    main(["--seed", "4", "--faults", "crash", "--trace"])
    told = capsys.readouterr().out
    assert "c1 takes epoch 1" in told
    assert "-- no more faults" in told


def test_a_failure_prints_its_seed_its_sentence_and_one_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(MemoryStore, "_check", lambda self, epoch: None)
    monkeypatch.setattr(MemoryStore, "append", anywhere(MemoryStore))
    assert main(["--seeds", "6", "--jobs", "1", "--faults", "usurper"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if "broke a promise (epochs)" in line)
    seed = lines[at].split()[1]
    assert lines[at + 1] == f"replay it with: scripts/simulate --seed {seed} --trace --faults 'usurper'"
    assert all(line[:8].strip().replace(".", "").isdigit() for line in lines[at - 1 - TAIL_LINES : at - 1])
    assert lines[-1].endswith("of the seeds")


def test_the_table_says_in_how_many_seeds_gangs_started(capsys: pytest.CaptureFixture[str]):
    assert main(["--seeds", "4", "--jobs", "1", "--faults", ""]) == 0
    (row,) = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("gang released")
    ]
    assert row[-1].endswith("%") and int(row[2]) >= int(row[3]) > 0


def test_unknown_faults_are_refused_and_known_ones_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["--faults", "gremlins"]) == 2
    assert main(["--faults", "list"]) == 0
    assert "usurper" in capsys.readouterr().out
