"""Spans on their way: what is dropped, how long it takes to stop, and what is said at start."""

from __future__ import annotations

import sys
import threading

import pytest

from phalanx.config import load
from phalanx.coordinator.traces import exporter as under_test
from phalanx.coordinator.traces.exporter import TraceExporter, trace_exporter
from phalanx.coordinator.traces.spans import SpanRecord
from phalanx.errors import ConfigError
from tests.support.otlp_receiver import an_otlp_receiver
from tests.support.waiting import wait_until


def a_span(number: int) -> SpanRecord:
    return SpanRecord("t", f"k{number}", None, f"span {number}", 1.0, 2.0, {"n": number})


def test_a_collector_that_never_answers_keeps_nobody_waiting():
    stuck, sent = threading.Event(), []

    def send(batch: list[SpanRecord]) -> bool:
        sent.append(batch)
        return stuck.wait()

    traces = TraceExporter(send, queue_max=10, every_s=0.01)
    traces.add([a_span(0)])
    wait_until(lambda: sent, what="the first is being sent")
    traces.add(a_span(number) for number in range(1, 31))
    assert traces.dropped == 20
    traces.close(0.05)
    stuck.set()
    wait_until(lambda: len(sent) == 2, what="what was kept is sent")
    assert [span.name for span in sent[1]] == [f"span {number}" for number in range(21, 31)]


def test_a_batch_that_failed_is_sent_again_and_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(under_test, "PAUSES_S", (0.001,))
    sent: list[str] = []

    def send(batch: list[SpanRecord]) -> bool:
        sent.extend(span.name for span in batch)
        return batch[0].name != "span 0"

    traces = TraceExporter(send, every_s=0.01)
    traces.add([a_span(0)])
    wait_until(lambda: traces.dropped == 1, what="it is given up")
    traces.add([a_span(1)])
    traces.close(10.0)
    assert sent == ["span 0"] * under_test.TRIES_MAX + ["span 1"]


def test_what_waits_is_sent_when_the_coordinator_stops():
    with an_otlp_receiver() as receiver:
        traces = trace_exporter(f"{receiver.address}/", "c1")
        assert traces is not None
        traces.add(a_span(number) for number in range(1200))
        traces.close(30.0)
        assert len({span.id for span in receiver.spans}) == 1200
        assert receiver.requests == 3
        assert receiver.spans[7].attributes == {"n": 7}


def test_a_missing_package_is_named_at_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(
        ConfigError, match=r"coordinator\.traces = http://c:4318 needs OpenTelemetry"
    ) as caught:
        trace_exporter("http://c:4318", "c1")
    assert "phalanx[otel]" in caught.value.hint


def test_the_variable_of_opentelemetry_is_read():
    settings = load(environment={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    assert settings.coordinator.traces == "http://collector:4318"
    assert load(environment={}).coordinator.traces is None
    for text in ("localhost:4317", ""):  # of another program, for all we know
        assert load(environment={"OTEL_EXPORTER_OTLP_ENDPOINT": text}).coordinator.traces == text
    assert trace_exporter("", "c1") is None


def test_an_address_that_is_none_is_refused_by_the_coordinator_alone():
    with pytest.raises(ConfigError, match="expected http://host:4318") as caught:
        trace_exporter("localhost:4317", "c1")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in caught.value.hint
