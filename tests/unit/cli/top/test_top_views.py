"""What `phalanx top` makes of a snapshot: cells, places, rows, alarms, readable lines."""

from __future__ import annotations

from msgspec.structs import replace

from phalanx.api.schema.cluster import ClusterView, DeviceView, NodeView
from phalanx.api.schema.jobs import Counts, JobView, ReasonView, RequestView, WatchEvent
from phalanx.cli.top.alarms import Failures, alarms_of
from phalanx.cli.top.changes import cancel_question
from phalanx.cli.top.heat_map import ColourBy, heat_map
from phalanx.cli.top.job_details import cluster_line
from phalanx.cli.top.job_rows import HEADINGS, REASONS_AT_ONCE, JobQuery, JobsShown, ReasonCache, job_rows
from phalanx.cli.top.log_tail import LogTail
from phalanx.cli.top.map_layout import Place, lay_out
from phalanx.cli.top.snapshot import ClusterSnapshot, pause_s
from phalanx.cli.top.status_bar import trouble_line


def a_device(index: int, number: str = "") -> DeviceView:
    return DeviceView(index, "h100", 80 << 30, task=f"job{number}" if number else None, number=number)


def a_node(name: str, *devices: DeviceView, rack: str = "") -> NodeView:
    labels = {"rack": rack} if rack else {}
    return NodeView(name, "Online", False, "", 8, 8, 1, 1, [], list(devices), labels, [], 0, "i", None)


def a_job(number: int, status: str = "Running", **fields: object) -> JobView:
    made = JobView(
        f"j{number}", "", f"name{number}", "alice", "default", 0, status, "", 1, Counts(), ["true"],  # type: ignore[arg-type]
        RequestView(1), None, 0.0, 0.0, None, None, None, 0, number=number,
    )  # fmt: skip
    return replace(made, **fields)


def a_snapshot(nodes: list[NodeView], jobs: list[JobView]) -> ClusterSnapshot:
    return ClusterSnapshot(10.0, ClusterView("1", 1, 1, 1, 1, 8, 8, 2, 1, 1, Counts()), nodes, jobs)


def signs(snapshot: ClusterSnapshot, by: ColourBy) -> list[str]:
    rows = [row for rack in heat_map(snapshot, by).racks for row in rack.rows]
    return ["".join(cell.symbol.sign for cell in row.cells) for row in rows]


def test_each_device_has_a_letter_for_every_colouring():
    broken = replace(a_device(2), out_of_service="Xid 79")
    idle = replace(a_device(3, "2.0"), idle_s=60.0)
    jobs = [a_job(1), a_job(2, user="bob", queue="night")]
    seen = a_snapshot([a_node("n1", a_device(0), a_device(1, "1.0"), broken, idle)], jobs)
    assert signs(seen, ColourBy.HOLDER) == ["·BxC"]
    assert signs(seen, ColourBy.USER) == ["·AxB"]
    assert signs(seen, ColourBy.QUEUE) == ["·DxN"]
    assert signs(seen, ColourBy.USAGE) == ["·#xi"]
    assert signs(seen, ColourBy.HEALTH) == ["++x+"]


def test_nodes_are_grouped_by_rack_in_natural_order():
    nodes = [a_node("n10", rack="r1"), a_node("n2", rack="r1"), a_node("n1", rack="r2")]
    found = heat_map(a_snapshot(nodes, []), ColourBy.HOLDER)
    assert [(rack.name, [row.node.name for row in rack.rows]) for rack in found.racks] == [
        ("r1", ["n2", "n10"]),
        ("r2", ["n1"]),
    ]


def test_a_thousand_nodes_fit_in_eighty_columns_and_the_cursor_reaches_all():
    nodes = [a_node(f"node{at:04}", *(a_device(index) for index in range(8))) for at in range(1000)]
    laid = lay_out(heat_map(a_snapshot(nodes, []), ColourBy.HOLDER), 80, 1)
    ends = [block.cells_left + 8 for line in laid.lines for block in line.blocks]
    assert max(ends) <= 80 and len(laid.lines) == 250
    assert laid.moved(Place("node0000"), "down", 249) == Place("node0996")
    assert laid.moved(Place("node0000", 7), "right") == Place("node0001", 0)
    assert laid.moved(Place("node0999", 7), "right") == Place("node0999", 7)


def test_jobs_are_filtered_and_sorted():
    partly = Counts(running=1, pending=4)
    jobs = [
        a_job(1),
        a_job(2, "Pending", counts=Counts(pending=1)),
        a_job(3, user="bob"),
        a_job(4, tasks=5, counts=partly),
    ]

    def ids(query: JobQuery) -> list[str]:
        return [row.id for row in job_rows(jobs, query, {"j2": "no room"}, 10.0)]

    assert ids(JobQuery()) == ["j4", "j3", "j2", "j1"]
    assert ids(JobQuery(shown=JobsShown.WAITING)) == ["j4", "j2"]
    assert ids(JobQuery(shown=JobsShown.RUNNING)) == ["j4", "j3", "j1"]
    assert ids(JobQuery(text="BOB run")) == ["j3"]
    assert (
        job_rows(jobs, JobQuery(shown=JobsShown.WAITING), {"j2": "no room"}, 10.0)[-1].cells[-1] == "no room"
    )


def test_reasons_are_asked_for_a_few_at_a_time_and_again_only_when_old():
    cache = ReasonCache()
    ids = [f"j{at}" for at in range(REASONS_AT_ONCE + 5)]
    held = ReasonView("Held", "gate", "held")
    first = cache.due(ids, 0.0)
    assert len(first) == REASONS_AT_ONCE
    for id in first:
        cache.note(id, held, 0.0)
    assert not set(cache.due(ids, 1.0)) & set(first)
    assert cache.due(first, 11.0) == first
    for id in first:
        cache.note(id, held, 20.0)
    cache.expire()
    assert cache.due(first, 20.0) == first and cache.texts[first[0]] == "held"
    cache.note(first[0], None, 20.0)
    assert cache.due(first, 21.0) == first[1:], "what does not wait any more is not asked for at once again"


def test_what_is_unusual_is_an_alarm_the_worst_first():
    lost = replace(a_node("n2"), status="Offline")
    drained = replace(a_node("n1"), drained=True, drain_reason="new \x1b[31mdisk")
    found = alarms_of(a_snapshot([drained, lost], []))
    assert [(each.severity, each.subject) for each in found] == [("critical", "n2"), ("notice", "n1")]
    assert found[1].text == "drained: new disk"


def test_only_failures_are_kept_of_the_stream():
    failures = Failures()
    assert failures.take(WatchEvent(1, 1.0, "AttemptEnded", status="Failed", number="4.1", text="exit 1"))
    assert not failures.take(WatchEvent(2, 1.0, "AttemptEnded", status="Completed"))
    assert [each.subject for each in failures.newest()] == ["4.1"]


def test_jobs_that_had_failed_before_come_after_what_fails_now():
    failures = Failures()
    failures.begin([a_job(number, "Failed", ended_at=float(number), exit_code=3) for number in (2, 4, 3)])
    failures.take(WatchEvent(9, 9.0, "AttemptEnded", status="Failed", number="4.1", text="exit 1"))
    assert [(each.subject, each.at) for each in failures.newest()] == [("4.1", 9.0), ("3", 3.0), ("2", 2.0)]


def test_lines_of_a_log_cannot_take_over_the_terminal():
    tail = LogTail()
    assert tail.take(b"50%\r100%\n\x1b[2Jcle") == ["100%"]
    assert tail.take(b"ar\xff\x1b]0;t\x07 \xe2\x80\xaex\n") == ["clear\ufffd x"]
    assert tail.end() == []


def test_a_slow_cluster_is_asked_less_often():
    assert pause_s(0.01, has_changed=True) == 1.0
    assert pause_s(2.0, has_changed=True) == 20.0


def test_an_answer_that_does_not_come_is_told_with_the_age_of_what_is_shown():
    assert trouble_line("", None, 10.0, 100.0) == ""
    assert trouble_line("", 99.0, 95.0, 100.0) == ""
    assert trouble_line("", 81.0, 80.0, 100.0) == "no answer for 19s (what is shown is 20s old)"
    assert trouble_line("refused", None, None, 100.0) == "refused"


def test_the_alarms_are_seen_on_a_narrow_terminal():
    snapshot = a_snapshot([], [])
    assert cluster_line(snapshot, 2, 80).endswith("2 alarms")
    assert cluster_line(snapshot, 2, 20).startswith("2 alarms")


def test_gpus_of_nodes_that_take_no_work_are_counted_too():
    nodes = [a_node("n1", a_device(0), a_device(1)), replace(a_node("n2", a_device(0)), status="Offline")]
    assert "1/3 GPUs free" in cluster_line(a_snapshot(nodes, []), 0, 80)


def test_ended_jobs_are_listed_with_how_they_ended():
    failed = a_job(1, "Failed", started_at=0.0, ended_at=4.0, exit_code=3, reason="exited")
    row = job_rows([failed], JobQuery(shown=JobsShown.ENDED), {}, 100.0)[0]
    assert row.cells[-2:] == ("4.0s", "exited, exit code 3") and not row.is_waiting


def test_gpus_are_those_of_one_task_as_in_ps():
    row = job_rows([a_job(7, tasks=10, request=RequestView(1, gpus=4))], JobQuery(), {}, 100.0)[0]
    assert row.cells[HEADINGS.index("GPUS")] == "×4"


def test_the_question_before_a_cancel_names_whose_job_it_is_and_what_it_holds():
    job = a_job(7, tasks=3, counts=Counts(running=2, completed=1), request=RequestView(1, gpus=4))
    assert cancel_question(job) == "Cancel job 7 name7 of alice (2 of 3 tasks, 8 GPUs)?"
