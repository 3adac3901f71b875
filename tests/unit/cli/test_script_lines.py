"""What is said of a script with options for another scheduler, which are not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_client import Cli, FakeClient


def a_script(*lines: str) -> str:
    script = Path("s.sh")
    script.write_text("\n".join(("#!/bin/sh", *lines, "true")))
    script.chmod(0o755)
    return f"./{script}"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["#SBATCH --gres=gpu:1", "#SBATCH --time=10"],
            "lines, which are not read: --gpus 1 --time-limit 10m",
        ),
        (["#SBATCH --gres=gpu:H100:4 -t 1-12"], "--gpus 4 --gpu-type h100 --time-limit 1d12h"),
        (["#SBATCH --time 2:30 --mem=500"], "--time-limit 2m30s -m 500MiB"),
        (["#SBATCH --mem=4G -t 01:00:05  # a comment"], "-m 4GiB --time-limit 1h5s"),
        (["#SBATCH -t 0 --nice", "#SBATCH -t later"], "2 #SBATCH lines, which are not read\n"),
        (["#SBATCH -J 'a b' -n 4 -a 1-3", '#SBATCH "'], "-n 'a b' --tasks 4 --array 1-3"),
        (["#HQ --cpus=4 --time-limit=10m"], "1 #HQ line, which is not read: -c 4\n"),
        (["#PBS -N train"], "1 #PBS line, which is not read"),
    ],
)
def test_options_of_another_scheduler_in_a_script_are_told_with_ours(
    cli: Cli, cluster: FakeClient, lines: list[str], told: str
):
    for words in ((a_script(*lines),), ("bash", "-e", a_script(*lines))):
        said = cli("submit", *words)
        assert (said.code, cluster.verbs()[-1]) == (0, "submit")
        assert told in said.err


def test_other_comments_and_programs_are_not_told(cli: Cli, cluster: FakeClient):
    script = a_script("# SBATCH --time=10", "echo '#SBATCH --time=10'", "#SBATCH is not read here")
    Path("program").write_bytes(b"#SBATCH --time=10\n\0")
    assert cli("submit", "bash", script, "program").err == ""
