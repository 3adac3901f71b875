"""Mistakes that new users made (section U3 of the findings), as far as the command line itself answers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import NotFound
from tests.support.fake_client import ID, Cli, FakeClient


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("submit --gpu 1 -- true", "--gpus"),
        ("submit --gpus=one -- true", "'one' is not a whole number"),
        ("submit --gpus -1 -- true", "-1 is too low: 0 is the least"),
        ("submit --detach -- true", "`phalanx submit` without it"),
        ("run --detach -- true", "use phalanx submit"),
        ("submit --cpus 4 -- true", "use -c N"),
        ("submit --resource=gpus/nvidia=1 -- true", "--gpus N"),
        ("hq submit -- true", "phalanx submit"),
        ("worker list", "use phalanx nodes"),
        ("submit --cores two -- true", "two"),
        ("submit -m 10 -- true", "write 10GiB"),
        ("submit python_train.py_--lr_1", "one word with spaces in it: leave the quotes out, or use --shell"),
        ("run --array 1-4 -- true", "use `phalanx submit`"),
        ("pss", "Did you mean 'ps'"),
        ("retryy 1", "Did you mean 'retry'"),
        ("kill 1", "use phalanx cancel ID"),
        ("ls", "use phalanx ps"),
        ("delete 1", "use phalanx cancel ID"),
        ("squeue", "use phalanx ps"),
        ("sbatch run.sh", "use phalanx submit -- ./script.sh"),
        ("srun hostname", "use phalanx run -- COMMAND"),
        ("sinfo", "use phalanx nodes"),
        ("describe 1", "use phalanx show ID"),
        ("htop", "use phalanx top"),
        ("submit -p gpu -- true", "use -q QUEUE"),
        ("submit --dependency=afterok:3 -- true", "use --after JOB"),
        ("run --ntasks 4 -- true", "use --tasks N"),
        ("submit --gres=gpu:2 -- true", "use --gpus N"),
        ("submit --mem 4G -- true", "use -m SIZE"),
        ("submit --cpus-per-task 4 -- true", "use -c N"),
        ("submit --time 10 -- true", "use --time-limit"),
        ("submit --job-name a -- true", "use -n NAME"),
        ("update 1 --memory 4GiB", "phalanx resubmit 1 --set memory=4GiB; 1 itself stays"),
        (
            "update b18 --gpus=4",
            "phalanx resubmit b18 --set gpus=4; b18 itself stays as it is: phalanx cancel b18",
        ),
        ("update --gpus 4 18", "phalanx resubmit 18 --set gpus=4"),
        ("update 18 19 --gpus 4", "phalanx resubmit ID --set gpus=4"),
        ("update 18 --gpus", "phalanx resubmit 18 --set gpus=2"),
        ("update 18", "give --priority, --time-limit, --queue, --begin or --limit"),
        ("ps -p gpu", "use -q QUEUE"),
        ("submit -f job.yaml", "use phalanx apply -f FILE"),
        ("apply job.yaml", "the file is given with -f: phalanx apply -f FILE"),
        ("workflow submit flow.yaml", "the file is given with -f: phalanx workflow submit -f FILE"),
        ("token create --user ada", "use --name NAME"),
        ("submit --max-fails 2 -- true", "there is nothing: a failed task does not stop the others"),
        ("submit --time-request 5 -- true", "there is nothing: no node ends by itself"),
        ("submit --nice 10 -- true", "use --priority N"),
        ("submit --mail-type END -- true", "use phalanx wait ID"),
        ("submit --pin -- true", "use -c N"),
        ("submit --stream log -- true", "use phalanx logs ID"),
        ("run --interactive -- bash", "use phalanx alloc"),
        ("run -it -- bash", "phalanx alloc opens a shell"),
        ("ps --me", "use --mine"),
        ("ps -t R", "use --status STATUS"),
        ("ps -j 4", "use phalanx show ID"),
        ("ps -A lab", "use -q QUEUE"),
        ("ps --nodelist n1", "use --node NAME"),
        ("ps waiting", "phalanx ps -s pending"),
        ("submit -o x.log -- true", "phalanx logs ID, which has the output"),
        ("submit -e x.err -- true", "phalanx logs ID has the output"),
        ("submit -t 1:00:00 -- true", "'1:00:00' is no target; a time is --time-limit"),
        ("submit --after 10 20 -- true", "20 is no program: write --after 10 --after 20 -- CMD"),
        ("submit --from-csv params.csv -- true {lr}", "params.csv cannot be read"),
        ("apply --dry-run -f job.yaml", "use phalanx plan -f FILE"),
        ("hold --all", "phalanx ps -o name"),
        ("wait --all", "phalanx ps -m -o name"),
        ("submit --gpus h100:2 -- true", "write --gpus 2 --gpu-type h100"),
        ("submit --nodes n[1-3] -- true", "'n[1-3]' is no name: write n1,n2,n3"),
        ("submit -t n1,n2 -- true", "write -t n1 -t n2"),
        ("help", "phalanx COMMAND --help"),
        ("results last --failed", "use --status failed"),
        ("logs last --failed", "use phalanx results ID --status failed"),
        ("cancel l*", "phalanx cancel --name 'l*'"),
        ("undrain n1", "use phalanx node resume NAME"),
        ("vps create --user ada", "see `phalanx vps create --help`"),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(cli: Cli, cluster: FakeClient, line: str, told: str):
    said = cli(*(word.replace("_", " ") for word in line.split()))
    assert said.code == 2
    assert told in said.err
    assert "did you mean" not in said.err or "see `phalanx" in said.err, "one thing is meant, not two"
    assert not [each for each in cluster.asked if each[0] == "submit"]


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (("submit", "--gpu", "2", "--", "ls"), "--gpus"),
        (("run", "--memry", "2", "--", "ls"), "--memory"),
        (("logs", "--timestamp", "1"), "--timestamps"),
        (("node", "drain", "--reasn", "x", "n1"), "--reason"),
    ],
)
def test_a_misspelled_option_is_told_the_one_that_was_meant(cli: Cli, args: tuple[str, ...], meant: str):
    said = cli(*args)
    assert said.code == 2
    assert f"did you mean {meant}?" in said.err and "Possible options" not in said.err


@pytest.mark.parametrize(
    ("script", "told"), [("train.py", "python train.py"), ("./prepare.sh", "bash ./prepare.sh")]
)
def test_a_script_that_could_not_be_run_is_not_submitted(
    cli: Cli, cluster: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
):
    monkeypatch.chdir(tmp_path)
    Path(script).write_text("")
    said = cli("submit", script)
    assert (said.code, cluster.verbs()) == (2, [])
    assert f"write {told}" in said.err
    for line in (("submit", "--image", "busybox", script), ("submit", "python", script)):
        assert cli(*line).code == 0
    Path(script).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli("submit", script).code == 0


def test_ctrl_c_while_waiting_says_that_the_job_goes_on(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(id: str, timeout: float | None = None, *, must_end: bool = True) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "wait", interrupted)
    said = cli("submit", "--wait", "--", "true")
    assert said.code == 130
    assert f"phalanx wait {ID}" in said.err and f"phalanx cancel {ID}" in said.err


def test_a_name_that_no_vps_has_is_that_of_no_vps(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    def unknown(*_: object, **__: object) -> object:
        raise NotFound("no job 'x'", reason="JobNotFound", hint="phalanx ps")

    for call in ("vps", "stop_vps", "restart_vps", "vps_snapshots"):
        monkeypatch.setattr(cluster, call, unknown, raising=False)
    for verb in ("show", "stop", "restart", "snapshots", "connect"):
        said = cli("vps", verb, "x")
        assert (said.code, "no VPS 'x'" in said.err, "phalanx vps list" in said.err) == (5, True, True)


def test_a_range_written_as_arrays_write_it_is_one_value_and_that_is_said(cli: Cli, cluster: FakeClient):
    said = cli(
        "submit", "--param", "seed=1-20", "--param", "date=2026-11-18,a-b", "--", "true", "{seed}", "{date}"
    )
    assert said.err.count("warning") == 1
    assert "seed=1-20 is one value" in said.err and "seed=1..20" in said.err


def test_a_file_to_plan_is_not_taken_for_a_command(cli: Cli, cluster: FakeClient, tmp_path: Path):
    job = tmp_path / "gang.yaml"
    job.write_text("command: [true]")
    said = cli("plan", str(job))
    assert (said.code, cluster.asked) == (2, [])
    assert f"-f {job}" in said.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("submit --array=1-4 --array=5-6 -- true", "--array is given 2 times; only the last one counts"),
        ("submit --tag a=b --tag a=c -- true", "--tag a is given twice; a=c counts"),
        ("submit -m 4G -- true", "-m 4G is 3.7 GiB (powers of 1000); write 4GiB"),
        ("submit --time-limit 59 -- true", "--time-limit 59 is 59 seconds; write 59m for minutes\n"),
        (
            "submit --time-limit 60 -- true",
            "--time-limit 60 is 60 seconds (1 minute); write 60m for minutes\n",
        ),
        (
            "submit --time-limit 5400 -- true",
            "--time-limit 5400 is 5400 seconds (1 hour 30 minutes); write 5400m",
        ),
        ("submit --time-limit 2:30 -- true", "--time-limit 2:30 is 2h30m; write 2m30s"),
        (
            "submit --nodes 2 -- true",
            "--nodes 2 is a name; 2 tasks on different nodes are --tasks 2 --spread",
        ),
        ("submit -- pyhton train.py", "there is no pyhton in PATH here"),
        ("submit ./nofile.sh", "there is no ./nofile.sh here"),
        ("submit -- bash -e ./trian.sh", "there is no ./trian.sh here"),
        ("submit -- sh trian.sh x.py", "there is no trian.sh here: the task fails unless its node has it\n"),
        (
            "submit --array 1-2 -- echo --seed=$PHALANX_ARRAY_INDEX",
            "$PHALANX_ARRAY_INDEX reaches the program as it stands, since no shell reads it; {i} is the index",
        ),
        ("submit -t 60 -- true", "-t 60 is a target, the node 60; a time is --time-limit\n"),
        ("submit -t 1:30 -- true", "-t 1:30 is a target, the node 1; a time is --time-limit\n"),
        ("submit --cwd /nonexistent true", "there is no folder /nonexistent here"),
    ],
)
def test_what_may_not_be_meant_is_accepted_with_one_warning(
    cli: Cli, cluster: FakeClient, line: str, told: str
):
    said = cli(*line.split())
    assert (said.code, cluster.verbs()) == (0, ["submit"])
    assert f"warning: {told}" in said.err and said.err.count("warning") == 1


@pytest.mark.parametrize(
    "line",
    [
        "submit --tag a=b --tag c=d -m 4GB --time-limit 1:02:30 --param s=1..2 -- ./{s}.sh --array 1 --array 2",
        "submit --image busybox -- pyhton",
        "submit --shell -- x;y",
        "submit -e PATH=/nowhere:/bin:/usr/bin -- true",
        "submit --array 1-2 -- sh -c echo_$PHALANX_ARRAY_INDEX",
        "submit -- sh -c trian.sh",
        "submit -- sh train-{i}.sh",
        "submit -t n1:0::0 -- true",
    ],
)
def test_what_is_clear_has_no_warning(cli: Cli, cluster: FakeClient, line: str):
    said = cli(*line.split())
    assert (said.code, said.err) == (0, "")


def test_a_job_file_is_not_submitted_as_a_command(cli: Cli, cluster: FakeClient):
    Path("job.yaml").write_text("command: [true]")
    said = cli("submit", "job.yaml")
    assert (said.code, cluster.asked, "write phalanx apply -f job.yaml" in said.err) == (2, [], True)


@pytest.mark.parametrize(("word", "told"), [("4,5", "write 4 5"), (":report", "write WORKFLOW:STAGE")])
def test_a_word_that_is_no_id_is_told_without_paths_of_the_api(
    cli: Cli, cluster: FakeClient, word: str, told: str
):
    cluster.error = NotFound(f"there is nothing at '/v1/jobs/{word}'", reason="RouteNotFound")
    said = cli("show", word)
    assert (said.code, told in said.err, "/v1/" in said.err) == (5, True, False)


@pytest.mark.parametrize("line", [f"submit --cwd /{'a' * 300} true", f"submit ./{'a' * 300}"])
def test_what_cannot_be_looked_for_here_is_left_to_the_node(cli: Cli, cluster: FakeClient, line: str):
    """As a folder is that only its user may enter: Python raises there, too."""
    assert (cli(*line.split()).code, cluster.verbs()) == (0, ["submit"])
