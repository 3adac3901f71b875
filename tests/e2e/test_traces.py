"""Traces of a running cluster, as a collector receives them; and a cluster whose collector is away or slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.clock import SystemClock
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, an_otlp_receiver
from tests.support.real_cluster import RealCluster, a_real_cluster, free_ports
from tests.support.waiting import wait_until

ONE_NODE = {"n1": "cpus=8,ram=16GiB"}
NEAR_S = 0.002  # seconds as nanoseconds and back


def one(found: list[ReceivedSpan]) -> ReceivedSpan:
    (span,) = found
    return span


def test_a_job_with_a_retry_is_one_trace(tmp_path: Path):
    with (
        an_otlp_receiver() as receiver,
        a_real_cluster(tmp_path, ONE_NODE, settings={"coordinator.traces": receiver.address}) as cluster,
    ):
        flag = tmp_path / "flag"
        script = f"test -e {flag} && exit 0; touch {flag}; exit 3"
        id = cluster.client.submit(command=["/bin/sh", "-c", script], name="flaky", max_retries=1).task_ids[0]
        view = cluster.client.wait(id)
        assert view.status == "Completed"
        wait_until(lambda: receiver.named("job flaky"), what="the root has arrived")
        root = one(receiver.named("job flaky"))
        assert root.start == pytest.approx(view.submitted_at, abs=NEAR_S)
        assert root.end >= root.start
        assert root.attributes["phalanx.status"] == "Completed"
        assert root.attributes["phalanx.job.id"] == id
        assert (root.resource["service.name"], root.resource["service.instance.id"]) == (
            "phalanx",
            "coordinator",
        )
        assert (root.parent, root.is_error) == (b"", False)
        waits = sorted(receiver.named("queue wait"), key=lambda span: span.start)
        runs = sorted(receiver.named("run"), key=lambda span: span.start)
        assert [span.attributes["phalanx.attempt"] for span in waits] == [1, 2]
        assert [span.attributes["phalanx.attempt"] for span in runs] == [1, 2]
        assert {(span.trace, span.parent) for span in waits + runs} == {(root.trace, root.id)}
        assert {span.attributes["phalanx.node"] for span in waits + runs} == {"n1"}
        assert [(span.is_error, span.attributes["phalanx.reason"]) for span in runs] == [
            (True, "exited"),
            (False, "none"),
        ]
        assert runs[0].message == "exited with code 3"
        assert runs[0].attributes["phalanx.exit_code"] == 3
        assert waits[0].start == pytest.approx(view.submitted_at, abs=NEAR_S)
        assert waits[1].start == pytest.approx(runs[0].end, abs=NEAR_S)
        assert len({span.id for span in receiver.spans}) == len(receiver.spans) == 5


def test_a_workflow_is_one_trace_over_a_restart_of_the_coordinator(tmp_path: Path):
    gate = tmp_path / "gate"
    with (
        an_otlp_receiver() as receiver,
        a_real_cluster(
            tmp_path / "c", ONE_NODE, lost_after_s=20.0, settings={"coordinator.traces": receiver.address}
        ) as cluster,
    ):
        flow = cluster.client.workflow("nightly")
        held = flow.stage("held", ["/bin/sh", "-c", f"while ! test -e {gate}; do sleep 0.05; done"])
        flow.stage("fails", ["/bin/false"], after=[held], max_retries=0)
        flow.stage("never", ["/bin/true"], after=["fails"])
        run = flow.submit()
        cluster.wait_task(run.jobs["held"], "Running")
        submitted_at = run.view().submitted_at
        job = cluster.client.job(run.jobs["held"])
        started_at = cluster.client.task(run.jobs["held"]).started_at
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        gate.touch()
        assert run.wait(60.0).status == "Failed"
        wait_until(lambda: receiver.named("workflow nightly"), what="the root has arrived")
        root = one(receiver.named("workflow nightly"))
        assert root.start == pytest.approx(submitted_at, abs=NEAR_S)
        assert (root.is_error, root.attributes["phalanx.status"]) == (True, "Failed")
        stages = {name: one(receiver.named(f"stage {name}")) for name in ("held", "fails", "never")}
        assert {(span.trace, span.parent) for span in stages.values()} == {(root.trace, root.id)}
        assert {name: span.attributes["phalanx.status"] for name, span in stages.items()} == {
            "held": "Completed",
            "fails": "Failed",
            "never": "Failed",
        }
        assert stages["held"].start == pytest.approx(job.submitted_at, abs=NEAR_S)
        assert stages["fails"].start >= stages["held"].end - 0.5
        ran = one([span for span in receiver.of(job_id=run.jobs["held"]) if span.name == "run"])
        assert ran.start == pytest.approx(started_at, abs=NEAR_S)
        assert (ran.trace, ran.parent) == (root.trace, stages["held"].id)
        assert root.end >= max(span.end for span in stages.values()) - 0.5


def works(cluster: RealCluster) -> float:
    """How long five submissions, one after another with their ends, take."""
    clock = SystemClock()
    started = clock.monotonic()
    for _ in range(5):
        id = cluster.client.submit(command=["/bin/true"]).task_ids[0]
        assert cluster.client.wait(id).status == "Completed"
    return clock.monotonic() - started


def test_a_collector_that_is_away_or_slow_delays_nothing(tmp_path: Path):
    (port,) = free_ports(1)
    settings = {"coordinator.traces": f"http://127.0.0.1:{port}"}
    with a_real_cluster(tmp_path, ONE_NODE, settings=settings) as cluster:
        assert works(cluster) < 10.0
        log = tmp_path / "coordinator.log"
        wait_until(lambda: "traces cannot be sent" in log.read_text(), what="the log says so")
        with an_otlp_receiver(port) as receiver:
            receiver.may_answer.clear()
            wait_until(lambda: receiver.requests, 40.0, "spans are sent again")
            assert works(cluster) < 10.0
            receiver.may_answer.set()
            wait_until(lambda: len(jobs_in(receiver)) == 10, 40.0, "none of the spans is lost")
        assert log.read_text().count("traces cannot be sent") == 1


def jobs_in(receiver: OtlpReceiver) -> set[str]:
    return {
        span.attributes["phalanx.job.id"] for span in list(receiver.spans) if span.name.startswith("job ")
    }


def test_without_traces_nothing_of_opentelemetry_is_imported():
    program = (
        "import sys, phalanx.coordinator.main, phalanx.coordinator.traces.exporter as exporter\n"
        "assert exporter.trace_exporter(None, 'c') is None\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0
