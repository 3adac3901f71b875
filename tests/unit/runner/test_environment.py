"""The environment of a task: alone, in gangs of one or several nodes, and in gangs of several groups."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from phalanx.config import TASK_VARIABLE
from phalanx.core.model.job import Command
from phalanx.core.model.orders import Brief, Roll, Start
from phalanx.core.model.resources import Capacity, Device, Grant
from phalanx.runner.environment import Peer, attempt_environment, group_environment, standing
from tests.tidy.source import ROOT

HERE = Peer("n1", "10.0.0.1")
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
PROCESS_LEVEL = (*RANKS, "MASTER_ADDR", "MASTER_PORT")


def test_a_jobs_token_stands_in_its_environment_and_only_if_there_is_one():
    env = group_environment(a_brief(token="phx_task_x"), "n1", "/ckpt")
    assert env["PHALANX_TASK_TOKEN"] == "phx_task_x"
    assert "PHALANX_TASK_TOKEN" not in group_environment(a_brief(), "n1", "/ckpt")


def test_the_number_of_a_job_is_there_unless_an_older_coordinator_told_none():
    assert group_environment(a_brief(number=17), "n1", "/ckpt")["PHALANX_JOB_NUMBER"] == "17"
    assert "PHALANX_JOB_NUMBER" not in group_environment(a_brief(), "n1", "/ckpt")


def test_the_address_for_that_token_stands_beside_it_and_never_alone():
    env = group_environment(a_brief(token="phx_task_x", address="http://c1:7433"), "n1", "/ckpt")
    assert env["PHALANX_TASK_ADDRESS"] == "http://c1:7433"
    for brief in (a_brief(token="phx_task_x"), a_brief(address="http://c1:7433")):
        assert "PHALANX_TASK_ADDRESS" not in group_environment(brief, "n1", "/ckpt")


def a_brief(tasks: int = 1, **fields: object) -> Brief:
    given: dict[str, object] = {"group_tasks": tasks, "env": {}, "group": 0, "name": "train"} | fields
    env, group, name = given.pop("env"), given.pop("group"), given.pop("name")
    command = Command(("/bin/true",), env)  # type: ignore[arg-type]
    return Brief("j1", group, command, name, "default", "j1", tasks, None, 5.0, None, **given)  # type: ignore[arg-type]


def a_roll(nodes: Sequence[int], formation: int = 1) -> Roll:
    """Member 0, 1, … on the nodes of these numbers, each with its own address."""
    seen = [*dict.fromkeys(nodes)]
    named = tuple((f"n{number}", f"10.0.0.{number}") for number in seen)
    return Roll(
        "j1", formation, named, tuple((rank, seen.index(number)) for rank, number in enumerate(nodes))
    )


def an_environment(
    position: int = 0,
    brief: Brief | None = None,
    roll: Roll | None = None,
    gpus: int = 0,
    port: int = 0,
    **fields: object,
) -> dict[str, str]:
    """The whole environment of one attempt, as the keeper would assemble it."""
    brief = brief or a_brief()
    grant = Grant(1, 0, tuple(range(gpus)))
    given = {"index": None, "restarts": 0, "formation": roll.formation if roll else 0} | fields
    start = Start(("j1", position, 1), 1, grant, group=brief.group, **given)  # type: ignore[arg-type]
    capacity = Capacity(8, 0, devices=tuple(Device(at, "h100", uuid=f"GPU-{at}") for at in range(8)))
    place = standing(start, brief, roll, HERE, port)
    return group_environment(brief, "n1", "/ckpt") | attempt_environment(brief, start, place, capacity, 7)


def some(env: dict[str, str], *names: str) -> list[str]:
    return [env[name] for name in names]


# Alone


def test_a_task_without_a_gang_stands_alone() -> None:
    env = an_environment(position=1, brief=a_brief(2), gpus=1, index=6)
    expected = {
        "PHALANX_TASK_ID": "j1.6",
        "PHALANX_ARRAY_INDEX": "6",
        "PHALANX_ARRAY_COUNT": "2",
        "PHALANX_RANK": "0",
        "PHALANX_WORLD_SIZE": "1",
        "PHALANX_NODE_RANK": "0",
        "PHALANX_NUM_NODES": "1",
        "PHALANX_NODE_IPS": "10.0.0.1",
        "PHALANX_NODE_NAMES": "n1",
        "PHALANX_GROUP": "",
        "PHALANX_GROUP_RANK": "1",
        "PHALANX_GROUP_SIZE": "2",
        "JOB_INDEX": "0",
        "JOB_COMPLETION_INDEX": "1",
        "REPLICATED_JOB_NAME": "train",
        "REPLICATED_JOB_REPLICAS": "1",
        "GLOBAL_REPLICAS": "1",
        "PET_NNODES": "1",
        "PET_NODE_RANK": "0",
        "PET_RDZV_ID": "j1.6",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
    }
    assert {name: env.get(name) for name in expected} == expected


def test_a_job_without_a_name_is_called_job() -> None:
    env = an_environment(brief=a_brief(name=""))
    assert some(env, "PHALANX_JOB_NAME", "REPLICATED_JOB_NAME", "PHALANX_HOSTNAME") == [
        "",
        "job",
        "job-job-0-0",
    ]


@pytest.mark.parametrize(("tasks", "id"), [(1, "j1"), (3, "j1.2")])
def test_a_task_of_several_is_named_by_its_position(tasks: int, id: str) -> None:
    env = an_environment(position=tasks - 1, brief=a_brief(tasks))
    assert env["PHALANX_TASK_ID"] == id
    assert "PHALANX_ARRAY_INDEX" not in env


# Gangs: nodes times members


def test_one_node_with_four_members_of_one_device_each() -> None:
    gang = [an_environment(at, a_brief(4), a_roll([1, 1, 1, 1]), gpus=1) for at in range(4)]
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "PET_NODE_RANK", "PHALANX_NODE_RANK", "PHALANX_LOCAL_RANK")
    assert [some(env, *names) for env in gang] == [
        ["0", "0", "0", "0", "0", "0"],
        ["1", "0", "1", "1", "0", "1"],
        ["2", "0", "2", "2", "0", "2"],
        ["3", "0", "3", "3", "0", "3"],
    ]
    sizes = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "PET_NNODES", "PET_NPROC_PER_NODE", "PHALANX_NUM_NODES")
    assert {tuple(some(env, *sizes)) for env in gang} == {("4", "1", "4", "1", "1")}


def test_two_nodes_with_two_members_of_one_device_each() -> None:
    gang = [an_environment(at, a_brief(4), a_roll([5, 5, 2, 2]), gpus=1) for at in range(4)]
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "PHALANX_NODE_RANK", "PET_NODE_RANK")
    assert [some(env, *names) for env in gang] == [
        ["0", "0", "1", "0", "0", "0"],
        ["1", "0", "1", "1", "0", "1"],
        ["2", "0", "1", "2", "1", "2"],
        ["3", "0", "1", "3", "1", "3"],
    ]
    assert {env["MASTER_ADDR"] for env in gang} == {"10.0.0.5"}
    assert {env["PHALANX_NODE_IPS"] for env in gang} == {"10.0.0.5,10.0.0.2"}
    assert {env["PHALANX_NODE_NAMES"] for env in gang} == {"n5,n2"}


@pytest.mark.parametrize(("gpus", "processes"), [(8, "8"), (0, "1")])
def test_two_nodes_with_one_member_each_are_two_nodes_to_torchrun(gpus: int, processes: str) -> None:
    gang = [an_environment(at, a_brief(2), a_roll([1, 2]), gpus=gpus) for at in range(2)]
    names = ("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR")
    assert [some(env, *names) for env in gang] == [
        ["2", "0", processes, "10.0.0.1"],
        ["2", "1", processes, "10.0.0.1"],
    ]
    assert {(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in gang} == {
        ("10.0.0.1", gang[0]["PET_MASTER_PORT"])
    }
    assert {name in env for env in gang for name in RANKS} == {gpus == 0}


def test_the_master_is_where_rank_0_stands_even_if_another_node_is_first() -> None:
    roll = Roll("j1", 1, (("n1", "10.0.0.1"), ("n2", "10.0.0.2")), ((1, 1), (0, 0)))
    assert some(an_environment(1, a_brief(2), roll), "PET_NODE_RANK", "PHALANX_RANK") == ["0", "0"]
    assert an_environment(0, a_brief(2), roll)["PET_MASTER_ADDR"] == "10.0.0.2"


def test_members_agree_on_a_port_and_the_next_formation_on_another() -> None:
    def ports(formation: int) -> set[str]:
        roll = a_roll([1, 2], formation)
        gang = [an_environment(at, a_brief(2), roll, gpus=1) for at in range(2)]
        return {env[name] for env in gang for name in ("PET_MASTER_PORT", "MASTER_PORT")}

    assert len(ports(1)) == len(ports(2)) == 1
    assert ports(1) != ports(2)
    assert all(20_000 <= int(port) < 30_000 for port in ports(1) | ports(2))


def test_a_node_that_told_no_address_is_reached_by_its_name() -> None:
    roll = Roll("j1", 1, (("n1", ""), ("n2", "10.0.0.2")), ((0, 0), (1, 1)))
    assert some(an_environment(1, a_brief(2), roll), "PHALANX_NODE_IPS", "PET_MASTER_ADDR") == [
        "n1,10.0.0.2",
        "n1",
    ]


def test_an_address_with_colons_stands_in_brackets_where_a_port_follows() -> None:
    roll = Roll("j1", 1, (("n1", "fd00::1"),), ((0, 0),))
    env = an_environment(0, a_brief(), roll)
    assert env["PET_RDZV_ENDPOINT"] == f"[fd00::1]:{env['PET_MASTER_PORT']}"
    assert env["PET_MASTER_ADDR"] == "fd00::1"


def test_a_member_that_its_roll_does_not_name_stands_alone() -> None:
    env = an_environment(5, a_brief(6), a_roll([1, 2]), gpus=1)
    assert some(env, "PHALANX_RANK", "PHALANX_WORLD_SIZE", "PHALANX_NODE_IPS") == ["0", "1", "10.0.0.1"]


def test_a_list_of_nodes_too_long_for_the_kernel_is_left_out() -> None:
    nodes = tuple((f"node-{number:05}", f"10.1.{number // 250}.{number % 250}") for number in range(12_000))
    roll = Roll("j1", 1, nodes, tuple((number, number) for number in range(12_000)))
    env = an_environment(0, a_brief(12_000), roll)
    assert env["PHALANX_NUM_NODES"] == "12000"
    assert "PHALANX_NODE_NAMES" not in env


# Gangs of several groups


LEADER = a_brief(
    5, group=0, group_name="coordinator", group_first=0, group_tasks=1, replicas=1, replicas_of_all=3
)
WORKER = a_brief(5, group=1, group_name="worker", group_first=1, group_tasks=4, replicas=2, replicas_of_all=3)
MIXED = a_roll([1, 1, 1, 2, 2])


def test_replicas_are_counted_as_jobset_counts_them() -> None:
    workers = [an_environment(at, WORKER, MIXED) for at in range(1, 5)]
    names = ("JOB_INDEX", "JOB_COMPLETION_INDEX", "PHALANX_HOSTNAME")
    assert [some(env, *names) for env in workers] == [
        ["0", "0", "train-worker-0-0"],
        ["0", "1", "train-worker-0-1"],
        ["1", "0", "train-worker-1-0"],
        ["1", "1", "train-worker-1-1"],
    ]
    shared = ("REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS", "GLOBAL_REPLICAS")
    assert some(workers[0], *shared) == ["worker", "2", "3"]
    assert some(an_environment(0, LEADER, MIXED), *shared) == ["coordinator", "1", "3"]
    assert an_environment(0, LEADER, MIXED)["PHALANX_HOSTNAME"] == "train-coordinator-0-0"


def test_the_seeds_own_arithmetic_finds_the_coordinator() -> None:
    """As in seed 002's `wait_for_coordinator`, with our name for the host."""
    env = an_environment(3, WORKER, MIXED)
    base = env["PHALANX_HOSTNAME"].rsplit("-", 2)[0]
    jobset = base[: -(len(env["REPLICATED_JOB_NAME"]) + 1)]
    coordinator = an_environment(0, LEADER, MIXED)
    assert f"{jobset}-coordinator-0-0" == coordinator["PHALANX_HOSTNAME"]
    assert int(env["GLOBAL_REPLICAS"]) - 1 == 2


def test_ranks_go_over_all_groups_and_places_over_ones_own() -> None:
    names = (
        "PHALANX_RANK",
        "PHALANX_WORLD_SIZE",
        "PHALANX_GROUP",
        "PHALANX_GROUP_RANK",
        "PHALANX_GROUP_SIZE",
    )
    assert some(an_environment(0, LEADER, MIXED), *names) == ["0", "5", "coordinator", "0", "1"]
    assert some(an_environment(3, WORKER, MIXED), *names) == ["3", "5", "worker", "2", "4"]


def test_members_of_several_groups_get_ranks_only_if_nobody_has_several_devices() -> None:
    """With an older coordinator it is unknown whether the others have one device each."""
    for roll, is_ranked in (
        (MIXED, False),
        (structs.replace(MIXED, most_devices=1), True),
        (structs.replace(MIXED, most_devices=2), False),
    ):
        env = an_environment(3, WORKER, roll, gpus=1)
        assert {name in env for name in RANKS} == {is_ranked}
        assert env["MASTER_ADDR"] == "10.0.0.1"


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_every_member_of_a_gang_is_told_where_to_meet(gpus: int) -> None:
    gang = [an_environment(at, a_brief(2), a_roll([1, 2]), gpus=gpus) for at in range(2)]
    assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in gang}) == 1


def test_tasks_of_an_array_have_a_port_and_a_meeting_of_their_own() -> None:
    array = [an_environment(at, a_brief(3), port=25_000 + at, index=at) for at in range(3)]
    assert [env["PET_MASTER_PORT"] for env in array] == ["25000", "25001", "25002"]
    assert [env["PET_RDZV_ID"] for env in array] == ["j1.0", "j1.1", "j1.2"]


def test_a_member_that_joins_later_is_told_what_those_before_it_were() -> None:
    first = structs.replace(a_roll([1, 2], formation=1), port=20_007, meeting=1)
    later = structs.replace(a_roll([1, 2, 2], formation=2), port=20_007, meeting=1)
    gang = [an_environment(at, a_brief(3), first) for at in range(2)]
    gang.append(an_environment(2, a_brief(3), later))
    assert {(env["PET_RDZV_ID"], env["MASTER_PORT"]) for env in gang} == {("j1.1", "20007")}


def test_a_group_that_started_with_fewer_members_counts_those_that_are_there() -> None:
    roll = Roll("j1", 1, (("n1", "10.0.0.1"),), ((0, 0), (2, 0), (3, 0)))
    names = ("PHALANX_RANK", "PHALANX_WORLD_SIZE", "PHALANX_GROUP_RANK", "PHALANX_GROUP_SIZE")
    assert some(an_environment(3, a_brief(4), roll), *names) == ["2", "3", "2", "3"]


# Which value wins


def test_what_the_user_gives_beats_conventions_and_is_beaten_by_ours() -> None:
    given = {
        "MASTER_PORT": "1234", "PET_NPROC_PER_NODE": "3", "JOB_COMPLETION_INDEX": "9", "GLOBAL_REPLICAS": "5",
        "PHALANX_RANK": "8", "PHALANX_JOB_ID": "mine", "CUDA_VISIBLE_DEVICES": "7", "MINE": "1",
    }  # fmt: skip
    env = an_environment(1, a_brief(2, env=given), a_roll([1, 1]), gpus=1)
    ours = {"PHALANX_RANK": "1", "PHALANX_JOB_ID": "j1", "CUDA_VISIBLE_DEVICES": "GPU-0"}
    assert {name: env[name] for name in given} == given | ours
    assert env["RANK"] == "1"


def test_ranks_of_processes_are_a_full_set_or_none() -> None:
    for gpus in (0, 1, 2):
        env = an_environment(0, a_brief(2), a_roll([1, 2]), gpus=gpus)
        assert {name in env for name in RANKS} == {gpus < 2}
        alone = an_environment(gpus=gpus)
        assert {name in alone for name in PROCESS_LEVEL} == {gpus == 1}


@pytest.mark.parametrize(
    ("command", "is_ranked"), [("python ddp.py", True), ("torchrun ddp.py", False), ("bash run.sh", False)]
)
def test_members_with_several_devices_that_run_python_itself_are_processes_with_ranks(
    command: str, is_ranked: bool
) -> None:
    brief = a_brief(2)
    brief = structs.replace(brief, command=structs.replace(brief.command, argv=tuple(command.split())))
    gang = [an_environment(at, brief, a_roll([1, 2]), gpus=4) for at in range(2)]
    assert {name in env for env in gang for name in RANKS} == {is_ranked}
    assert {env["PET_NPROC_PER_NODE"] for env in gang} == {"4"}
    if is_ranked:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        assert [some(env, *names) for env in gang] == [["0", "2", "0", "1"], ["1", "2", "0", "1"]]
    assert not set(RANKS) & set(
        an_environment(0, brief, gpus=4)
    )  # alone: frameworks would take it for distributed


def test_ranks_are_not_told_where_members_of_other_groups_may_run_a_launcher() -> None:
    command = structs.replace(WORKER.command, argv=("python", "ddp.py"))
    brief = structs.replace(WORKER, command=command)
    env = an_environment(3, brief, structs.replace(MIXED, most_devices=2), gpus=2)
    assert not set(RANKS) & set(env)


def test_a_command_inside_a_task_does_not_stumble_over_our_names() -> None:
    env = an_environment(0, a_brief(2), a_roll([1, 2]), gpus=1, index=3)
    ours = [name for name in (*env, "PHALANX_KEEPER", "PHALANX_DEADLINE") if name.startswith("PHALANX_")]
    assert [name for name in ours if not TASK_VARIABLE.fullmatch(name)] == []


def test_every_name_stands_in_the_reference() -> None:
    page = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
    env = an_environment(0, a_brief(2), a_roll([1, 2]), gpus=1, index=3)
    assert [name for name in (*env, "PHALANX_KEEPER", "PHALANX_DEADLINE") if f"`{name}`" not in page] == []


def test_nothing_of_slurms_is_set_unasked() -> None:
    assert not [
        name for name in an_environment(0, a_brief(2), a_roll([1, 2]), gpus=1) if name.startswith("SLURM")
    ]
