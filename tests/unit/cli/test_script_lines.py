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
        (
            ["#SBATCH -t 0 --nice", "#SBATCH -t later"],
            "2 #SBATCH lines, which are not read; not translated: -t 0, --nice, -t later\n",
        ),
        (
            ["#SBATCH -J 'a b' -n 4 -a 1-3", '#SBATCH -o "'],
            "-n 'a b' --tasks 4 --array 1-3; not translated: -o \"\n",
        ),
        (
            ["#SBATCH --nodes=2 --ntasks-per-node=2 --gres=gpu:8 --mem=15G", "#SBATCH -N2"],
            ": --tasks 4 --gpus 4 -m 7680MiB\n",
        ),
        (
            ["#SBATCH -N2 --exclusive --gpus-per-node=h100:8"],
            ": --tasks 2 --spread --exclusive --gpus 8 --gpu-type h100",
        ),
        (["#SBATCH -N 2 -n 8 --gpus 8 --exclusive"], ": --tasks 8 --gpus 1; not translated: --exclusive\n"),
        (["#SBATCH -n 1 -G 2", "#SBATCH --mem 0"], ": --gpus 2; not translated: --mem 0\n"),
        (
            [
                "#SBATCH --dependency=afterok:5:6,afterany:7 -d afternotok:8",
                "#SBATCH -d afterok:9?afterok:10",
            ],
            ": --after 5 --after 6 --after 7:any --after 8:failed; not translated: -d 'afterok:9?afterok:10'\n",
        ),
        (
            ["#SBATCH --constraint=a100 -o %j.log", "#SBATCH --mail-type=END -H --export=NONE"],
            ": --hold --export NONE; not translated: --constraint=a100, -o %j.log, --mail-type=END\n",
        ),
        (
            ["#HQ --resource gpus=1 --time-limit=1h30m --cwd /tmp --name a", "#HQ --nodes=2 --pin taskset"],
            ": --gpus 1 --time-limit 1h30m --cwd /tmp -n a --tasks 2 --spread; not translated: --pin taskset\n",
        ),
        (
            ["#HQ --resource mem=1 --time-limit 90"],
            "not read; not translated: --resource mem=1, --time-limit 90\n",
        ),
        (
            ["#PBS -W depend=afterok:5", "#PBS -l walltime=1:00:00 -q gpu"],
            ": --after 5 -q gpu; not translated: -l walltime=1:00:00\n",
        ),
        (["#HQ --cpus=4 --time-limit=10m"], "1 #HQ line, which is not read: -c 4 --time-limit 10m\n"),
        (["#PBS -N train"], "1 #PBS line, which is not read: -n train\n"),
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
