"""How the command line shows and makes gangs: `gang`, `show`, `ps`, `submit --tasks`, `run --tasks`, `evict`."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.jobs import ConditionView, Counts, DomainSlots, EvictReply, FormationView, PromiseView
from phalanx.api.schema.submission import SubmitRequest
from tests.support.fake_client import ID, Cli, FakeClient, a_gang, a_job, a_task, a_why

EVICTED = ConditionView(
    "DisruptionTarget", "True", "PreemptionByScheduler", "preemptor: default/hello-job", 1.0
)


def asked(cluster: FakeClient) -> SubmitRequest:
    (call,) = [call for call in cluster.asked if call[0] == "submit"]
    request: SubmitRequest = call[1]
    return request


def members(*tasks: Any) -> list[Any]:
    return [a_task(f"{ID}.{number}", **fields) for number, fields in enumerate(tasks)]


def test_a_gang_in_one_command(cli: Cli, cluster: FakeClient):
    words = ["--tasks", "16", "--min", "12", "--gpus", "8", "--gather", "rack:must", "--gather", "spine"]
    said = cli("submit", *words, "--gang-wait", "5m", "-l", "disk=ssd", "--", "torchrun", "train.py")
    assert (said.code, said.out) == (0, f"{ID}\n")
    request = asked(cluster)
    assert (request.tasks, request.min, request.gpus, request.gang_wait) == (16, 12, 8, "5m")
    assert request.gather == [GatherSpec("rack", must=True), GatherSpec("spine")]
    assert request.labels == {"disk": "ssd"}


def test_whom_it_may_evict(cli: Cli, cluster: FakeClient):
    cli("submit", "--preemption", "never", "--not-evictable", "--min-run", "1h", "--", "true")
    request = asked(cluster)
    assert (request.preemption, request.evictable, request.min_run) == ("never", False, "1h")


def test_a_rule_that_cannot_be_read_is_a_wrong_command_line(cli: Cli, cluster: FakeClient):
    said = cli("submit", "--tasks", "2", "--gather", "rack:Must", "--", "true")
    assert said.code == 2
    assert "LAYER:must" in said.err
    assert cluster.asked == []


def test_run_labels_the_lines_of_each_member(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"one\ntw", b"o\nthree"]
    cluster.ends = [a_gang(status="Completed", exit_code=0)]
    cluster.kept_tasks = members({"status": "Completed"}, {"status": "Completed"})
    said = cli("run", "--tasks", "2", "--", "hostname")
    assert said.code == 0
    assert sorted(said.out.splitlines()) == ["0: one", "0: three", "0: two", "1: one", "1: three", "1: two"]


def test_run_shows_one_of_very_many(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"hello\n"]
    cluster.ends = [a_gang(status="Completed", exit_code=0)]
    cluster.kept_tasks = members({"status": "Completed"})
    said = cli("run", "--tasks", "1000", "--", "hostname")
    assert said.out == "hello\n"
    assert "task 0 of 1000" in said.err


def test_a_gang_that_fails_says_why(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_gang(status="Failed", reason="exited", exit_code=3)]
    cluster.kept_tasks = members({"status": "Failed"}, {"status": "Failed"})
    said = cli("run", "--tasks", "2", "--", "false")
    assert said.code == 3
    assert f"{ID} Failed: 4 GPUs needed, 2 free" in said.err


def test_ps_counts_what_has_ended_and_in_wide_the_members_that_hold_a_place(cli: Cli, cluster: FakeClient):
    cluster.held = [a_gang(), a_gang(ID[:-1] + "a", "Completed", counts=Counts(completed=4))]
    tasks = [line.split()[3] for line in cli("ps", "-a").out.splitlines()[1:]]
    assert sorted(tasks) == ["0/4", "4/4"]
    wide = cli("ps", "-o", "wide").out
    assert "PHASE" in wide and "PLACED" in wide


def test_members_that_have_finished_are_not_told_as_running(cli: Cli, cluster: FakeClient):
    counts = Counts(pending=15, running=5)
    cluster.held = [a_gang(tasks=20, counts=counts, placed=2, finished=3)]
    (row,) = cli("ps").out.splitlines()[1:]
    assert row.split()[3] == "3/20"
    assert "5/20 (3 finished)" in cli("gang", "list").out
    out = cli("show", ID).out
    assert "3 finished, 15 pending, 2 running" in out
    assert "Running, 2 of 20 placed, 3 finished, 4 needed" in out


def test_a_member_that_has_finished_says_so(cli: Cli, cluster: FakeClient):
    cluster.held = [a_gang()]
    cluster.kept_tasks = members({"exit_code": 0}, {})
    for words in (["gang", "show", ID], ["ps", "--tasks", ID]):
        rows = cli(*words).out.splitlines()[-2:]
        assert ["Finished" in row for row in rows] == [True, False]


def test_who_waits_for_a_gang_is_told_how_many_have_finished(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_gang(finished=3), a_gang(status="Completed", counts=Counts(completed=4))]
    said = cli("wait", ID)
    assert "3 of 4 ended, 1 running" in said.err


def test_show_tells_groups_formation_and_restarts(cli: Cli, cluster: FakeClient):
    forming = FormationView(number=2, formed_at=1.0, until=61.0, placed=4, ready=3)
    cluster.held = [a_gang(phase="Scheduled", formation=forming, restarts=1, setbacks=2)]
    out = cli("show", ID).out
    assert "Scheduled, 4 of 4 placed, 4 needed" in out
    assert "number 2: 3 of 4 placed members ready" in out
    assert "1 of 3 used, and 2 not counted" in out
    assert "workers" in out and "torchrun train.py" in out and "8 GPUs" in out


def test_show_tells_whose_places_it_gets(cli: Cli, cluster: FakeClient):
    promise = PromiseView(made_at=1.0, until=31.0, victims=["01victim.3"], nominated={"n1": 2, "n2": 2})
    cluster.held = [a_gang(status="Pending", phase="Scheduling", promise=promise)]
    out = cli("show", ID).out
    assert "n1 × 2, n2 × 2, reserved until" in out
    assert "01victim.3" in out


def test_show_tells_a_victim_for_whom_it_left(cli: Cli, cluster: FakeClient):
    cluster.kept_tasks = [a_task(f"{ID}.0", group="workers", rank=0, conditions=[EVICTED])]
    out = cli("show", f"{ID}.0").out
    assert "DisruptionTarget=True (PreemptionByScheduler)" in out
    assert "preemptor: default/hello-job" in out


def test_gang_show_lists_members_by_rank(cli: Cli, cluster: FakeClient):
    cluster.held = [a_gang()]
    cluster.kept_tasks = members(
        {"rank": 1}, {"rank": 0, "ready": True}, {"nominated_node": "n7", "node": None}
    )
    lines = cli("gang", "show", ID).out.splitlines()[-3:]
    assert [line.split()[0][-1] for line in lines] == ["1", "0", "2"]
    assert "Ready" in lines[0]
    assert "(n7)" in lines[2]


def test_a_member_that_waits_again_is_on_no_node_and_says_once_why(cli: Cli, cluster: FakeClient):
    cluster.held = [a_gang()]
    said = f"an earlier attempt: {EVICTED.message}"
    cluster.kept_tasks = members({"status": "Pending", "message": said, "conditions": [EVICTED]})
    line = cli("gang", "show", ID).out.splitlines()[-1]
    assert line.count(EVICTED.message) == 1
    assert "n1" not in line.split()
    assert "n1" not in cli("ps", "--tasks", ID).out.split()


def test_gang_list_leaves_others_out(cli: Cli, cluster: FakeClient):
    cluster.held = [a_gang(), a_job(ID[:-1] + "a")]
    rows = cli("gang", "list").out.splitlines()[1:]
    assert [row.split()[:4] for row in rows] == [[ID, "train", "Running", "4/4"]]


def test_evict_goes_on_after_one_that_fails(cli: Cli, cluster: FakeClient):
    cluster.held = [a_gang()]
    said = cli("evict", "nobody", ID)
    assert (said.code, said.out) == (5, f"{ID}: 4 tasks being evicted\n")
    assert json.decode(cli("evict", ID, "-o", "json").out, type=list[EvictReply]) == [EvictReply(ID, 4)]


def test_why_tells_the_slots_of_each_domain(cli: Cli, cluster: FakeClient):
    cluster.answer = a_why(
        needed=16, domains=[DomainSlots("rack", ["s1", "r3"], 12, 3), DomainSlots("cluster", [], 20, 5)]
    )
    assert cli("why", ID).out.splitlines()[1:3] == [
        "  rack s1/r3: room for 12 of 16 on 3 nodes",
        "  the cluster: room for 20 of 16 on 5 nodes",
    ]


@pytest.mark.parametrize("verb", ["list", "show"])
def test_a_gang_in_json_is_what_the_api_says(cli: Cli, cluster: FakeClient, verb: str):
    cluster.held = [a_gang()]
    told = json.decode(cli("gang", verb, *([ID] if verb == "show" else []), "-o", "json").out)
    job = told["job"] if verb == "show" else told[0]
    assert job["gang"]["phase"] == "Running"


def test_a_member_that_was_evicted_has_no_node_and_its_message_once(cli: Cli, cluster: FakeClient):
    text = "phalanx: preempted to make room for urgent"
    evicted = ConditionView("DisruptionTarget", "True", "PreemptionByScheduler", text, 1.0)
    cluster.held = [a_gang(status="Pending")]
    cluster.kept_tasks = members(
        {"status": "Pending", "node": "n7", "message": text, "conditions": [evicted], "rank": 0}
    )
    out = cli("gang", "show", ID).out
    assert "n7" not in out
    assert out.count("preempted") == 1
    assert "phalanx: " not in out
    over = replace(evicted, status="False")
    cluster.kept_tasks = members({"message": f"an earlier attempt: {text}", "conditions": [over], "rank": 0})
    assert (
        cli("gang", "show", ID).out.rstrip().endswith("an earlier attempt: preempted to make room for urgent")
    )
