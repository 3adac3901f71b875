"""How a JobSpec becomes a Job, or a refusal that names the field, the value and what would be right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.api.schema.jobspec import JobSpec, to_job
from phalanx.core.model.job import Gang, Gather, Job, Restart, Rule, Success
from phalanx.errors import PhalanxError

Fields = dict[str, Any]


def a_job(groups: list[Fields] | None = None, **fields: Any) -> Job:
    """The job of a spec with one group, or of these."""
    given = [{"command": ["x"], **group} for group in (groups or [{}])]
    spec = msgspec.convert({"groups": given, **fields}, JobSpec)
    return to_job(spec, id="id1", now=7.0, user="ada", default_retries=3)


def refusal(groups: list[Fields] | None = None, **fields: Any) -> str:
    with pytest.raises(PhalanxError) as caught:
        a_job(groups, **fields)
    return caught.value.detail


def test_a_plain_job():
    job = a_job(name="train", priority=5)
    assert (job.id, job.batch, job.user, job.submitted_at, job.name, job.priority) == (
        "id1",
        "id1",
        "ada",
        7.0,
        "train",
        5,
    )
    assert (job.gang, job.restart, job.max_retries, job.grace_s) == (None, Restart(), 3, 5.0)


def test_what_a_group_asks_for():
    group = a_job(
        [
            {
                "tasks": 4,
                "cores": 2,
                "memory": "1GiB",
                "gpus": 1,
                "labels": {"b": "2", "a": "1"},
                "target": "n1:0",
            }
        ]
    ).groups[0]
    request = group.request
    assert (group.tasks, request.cores, request.memory_bytes, request.gpus) == (4, 2, 2**30, 1)
    assert request.labels == (("a", "1"), ("b", "2"))
    assert str(request.target) == "n1:0"


def test_named_devices_are_the_count():
    assert a_job([{"target": "n1::0,1"}]).groups[0].request.gpus == 2


def test_a_shell_line_is_one_argument():
    spec = msgspec.convert({"groups": [{"shell": "echo $A"}]}, JobSpec)
    assert to_job(spec, id="1", now=0, user="", default_retries=0).groups[0].command.argv == (
        "/bin/sh",
        "-c",
        "echo $A",
    )


def test_a_gang_starts_anew_as_a_whole_unless_told_otherwise():
    job = a_job(gang=True)
    assert job.gang == Gang()
    assert (job.restart, job.max_retries) == (Restart(whole=True, limit=3), 0)
    assert a_job(gang=True, max_retries=7).restart.limit == 7
    assert (
        a_job(gang=True, restart={"whole": False}).restart,
        a_job(gang=True, restart={"whole": False}).max_retries,
    ) == (Restart(), 3)


def test_a_limit_of_restarts_leaves_the_retries_of_tasks_alone():
    job = a_job(gang=True, restart={"limit": 2}, max_retries=1)
    assert (job.restart.limit, job.max_retries) == (2, 1)
    assert a_job(gang=True, restart={"limit": 2}).max_retries == 0


def test_words_of_a_gang():
    gang = {"strict": False, "match": "only-waiting", "wait": "10m", "affinity": "k", "id": "default/g"}
    job = a_job(gang=gang, gather=[{"layer": "rack", "must": True, "multiple": 4}])
    assert job.gang == Gang((Gather("rack", True, 4),), False, "only-waiting", 600.0, "k", "default/g")


def test_rules_and_success():
    rule = {"action": "restart-replica", "reasons": ["oom"], "patterns": ["code 3"], "groups": ["w"]}
    job = a_job(
        [{"name": "w"}], restart={"whole": True, "rules": [rule]}, success={"any": True, "groups": ["w"]}
    )
    assert job.restart.rules == (Rule("restart-replica", ("oom",), ("code 3",), ("w",)),)
    assert job.success == Success(True, ("w",))


def test_an_array_numbers_the_tasks_of_the_only_group():
    job = a_job(array="1-10%3")
    assert (job.tasks, job.groups[0].at_once) == (10, 3)


def test_as_many_at_once_as_there_are_is_no_limit():
    assert a_job([{"tasks": 4, "replicas": 2, "at_once": 2}]).groups[0].at_once == 0


def test_preemption_and_protection():
    job = a_job(preemption="never", evictable=False, min_run="5m", time_limit="1h", grace=0)
    assert (job.may_evict, job.evictable, job.min_run_s, job.time_limit_s, job.grace_s) == (
        False,
        False,
        300,
        3600,
        0,
    )


@pytest.mark.parametrize(
    ("groups", "fields", "told"),
    [
        ([{"tasks": 2, "min": 3}], {"gang": True}, "groups[0].min: 3 is above tasks, which is 2"),
        ([{"tasks": 2, "min": 1}], {}, "groups[0].min: 1 given without a gang"),
        ([{}], {"gather": [{"layer": "rack"}]}, "gather: given without a gang"),
        ([{"tasks": 10, "replicas": 4}], {}, "groups[0].replicas: 4 does not divide 10 tasks into equal runs, 8 or 12"),
        ([{"tasks": 3, "replicas": 4}], {}, "4 tasks would do"),
        ([{"tasks": 0}], {}, "groups[0].tasks: 0 is out of range"),
        ([{"tasks": -5}], {}, "groups[0].tasks: -5 is out of range"),
        ([{"tasks": 10**7}], {}, "groups[0].tasks: 10000000 is out of range"),
        ([{"name": "a", "tasks": 600_000}, {"name": "b", "tasks": 600_000}], {}, "1200000 tasks in all are too many"),
        ([{"name": "a"}, {"name": "a"}], {}, "groups[1].name: 'a' is already the name of groups[0]"),
        ([{"name": "a"}, {}], {}, "groups[1].name: '' is not a name"),
        ([{"name": "a"}, {"name": "b", "after": [{"group": "c"}]}], {}, "after: there is no group 'c' (groups: a, b)"),
        ([{"name": "a", "after": [{"group": "a"}]}], {}, "wait for each other in a circle: a → a"),
        (
            [{"name": "a", "after": [{"group": "b"}]}, {"name": "b", "after": [{"group": "a"}]}],
            {},
            "wait for each other in a circle",
        ),
        ([{"tasks": 4, "at_once": 2}], {"gang": True}, "groups[0].at_once: 2 lets at most 2 tasks hold a place"),
        ([{"tasks": 3, "indexes": [1, 2]}], {}, "groups[0].indexes: 2 are given for 3 tasks"),
        ([{"tasks": 2, "indexes": [1, 1]}], {}, "groups[0].indexes: 1 is given twice"),
        ([{"tasks": 1, "indexes": [-1]}], {}, "groups[0].indexes: -1 is out of range"),
        ([{"cores": -1}], {}, "groups[0].cores: -1 is out of range"),
        ([{"memory": "lots"}], {}, "groups[0].memory: 'lots' is not a size"),
        ([{"memory": "8MiB"}], {}, "groups[0].memory: '8MiB' is too little: the least for a task is 16MiB"),
        ([{"gpu_type": "h100"}], {}, "groups[0].gpu_type: given without"),
        ([{"target": "n1::0,1", "gpus": 3}], {}, "groups[0].gpus: 3 contradicts target"),
        ([{"target": "-n1"}], {}, "groups[0].target: invalid target"),
        ([{"labels": {"": "x"}}], {}, "groups[0].labels: '' is not a label"),
        ([{"cwd": "here"}], {}, "groups[0].cwd: 'here' is not an absolute path"),
        ([{"env": {"A=": "x"}}], {}, "groups[0].env: 'A=' is not a variable name"),
        ([{"command": []}], {}, "groups[0].command: nothing to run"),
        ([{"shell": "x"}], {}, "give one of them, not both"),
        ([{}], {"success": {"groups": ["w"]}}, "success.groups: there is no group 'w'"),
        ([{}], {"restart": {"whole": True, "rules": [{"action": "fail", "groups": ["w"]}]}}, "there is no group"),
        ([{}], {"restart": {"rules": [{"action": "fail", "reasons": ["bored"]}]}}, "reasons: 'bored' is unknown"),
        ([{}], {"restart": {"limit": 3}}, "restart.limit: 3 given without whole: true"),
        ([{}], {"restart": {"whole": True, "limit": -1}}, "restart.limit: -1 is out of range"),
        ([{}], {"max_retries": 10**6}, "max_retries: 1000000 is out of range"),
        ([{}], {"priority": 10**12}, "priority: 1000000000000 is out of range"),
        ([{}], {"name": "A B"}, "name: 'A B' is not a name"),
        ([{}], {"queue": ""}, "queue: '' is not a name"),
        ([{}], {"array": "x"}, "array: "),
        ([{"tasks": 3}], {"array": "1-2"}, "groups[0].tasks: 3 contradicts array '1-2'"),
        ([{"name": "a"}, {"name": "b"}], {"array": "1-2"}, "array: '1-2' numbers the tasks of one group"),
        ([{}], {"gang": True, "gather": [{"layer": ""}]}, "gather[0].layer: it is empty"),
        ([{}], {"gang": True, "gather": [{"layer": "a", "multiple": 0}]}, "gather[0].multiple: 0 is out of range"),
        ([{}], {"gang": {"wait": 0}}, "gang.wait: 0"),
        ([{}], {"time_limit": "soon"}, "time_limit: 'soon' is not a duration"),
        ([{}], {"grace": "2d"}, "grace: "),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_refused(groups: list[Fields], fields: Fields, told: str):
    assert told in refusal(groups, **fields)


def test_a_job_of_nothing_is_refused():
    with pytest.raises(PhalanxError, match="groups: there is none"):
        to_job(JobSpec([]), id="1", now=0, user="", default_retries=3)


@pytest.mark.parametrize(
    ("groups", "fields", "start"),
    [
        ([{"tasks": 10_001}], {}, "groups[0].tasks: 10001 tasks"),
        ([{"name": "a", "tasks": 6_000}, {"name": "b", "tasks": 6_000}], {}, "groups: 12000 tasks"),
        ([{}], {"array": "1-10001"}, "array: 10001 tasks"),
    ],
)
def test_a_gang_has_a_limit_of_its_own(groups: list[Fields], fields: Fields, start: str):
    said = refusal(groups, gang=True, **fields)
    assert said.startswith(start)
    assert said.endswith("too many for a gang, at most 10000 can start together")
    assert a_job(groups, **fields).tasks > 10_000


def test_spread_is_of_a_group_and_goes_with_must_rules_alone():
    groups: list[Fields] = [{"name": "a", "spread": True}, {"name": "b"}]
    must = [{"layer": "rack", "must": True}]
    job = a_job(groups, gang=True, gather=must)
    assert [group.request.spread for group in job.groups] == [True, False]
    assert "gather[0]: spread asks" in refusal(groups, gang=True, gather=[{"layer": "rack"}])
    assert "gang.affinity: it keeps" in refusal(groups, gang={"affinity": "x"})
