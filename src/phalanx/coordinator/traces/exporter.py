"""Spans on their way to a collector: a bounded queue, and a thread that sends them by OTLP over HTTP.

A collector that is slow or away delays nothing: the oldest spans are dropped when the queue is full, and the log says
once that it fails and once that it goes on. OpenTelemetry is imported only here, when traces are on. Its exporter reads
the variables that OpenTelemetry defines for it: headers, certificates, compression.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from phalanx import __version__
from phalanx.coordinator.traces.spans import SpanBuilder, SpanRecord
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.state import ClusterState
from phalanx.errors import ConfigError
from phalanx.logger import logger

log = logger("coordinator")
QUEUE_MAX = 20_000  # spans; about 20 MiB
BATCH_MAX = 512
EVERY_S = 1.0
TIMEOUT_S = 10.0  # of one message, retries of the library included
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # after a message that failed
TRIES_MAX = 8  # of one message; then it is dropped, for the collector may refuse it for what it holds
CLOSE_S = 2.0  # for the last spans, when the coordinator stops

_ADDRESS = re.compile(r"https?://[!-~]{1,2000}")

Send = Callable[[list[SpanRecord]], bool]


class TraceExporter:
    """Takes turns, and sends their spans."""

    def __init__(self, send: Send, queue_max: int = QUEUE_MAX, every_s: float = EVERY_S) -> None:
        """`send` tries to send a batch, for as long as it takes, and says whether it arrived."""
        self._send = send
        self._every_s = every_s
        self._builder = SpanBuilder()
        self._queue: deque[SpanRecord] = deque(maxlen=queue_max)
        self._ending = threading.Event()
        self._failures = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="phalanx-traces", daemon=True)
        self._thread.start()

    def observe(self, turn: Turn, state: ClusterState) -> None:
        """A turn is durable, and `state` is what came of it. Called by the coordinator's loop; never waits."""
        self.add(self._builder.spans(turn, state))

    def follow(self, turn: Turn, state: ClusterState) -> None:
        """The same of a turn of another coordinator, which sends its spans itself."""
        for _ in self._builder.spans(turn, state):
            pass

    def resume(self, state: ClusterState) -> None:
        """The state was read from the store."""
        self._builder.resume(state)

    def add(self, spans: Iterable[SpanRecord]) -> None:
        for span in spans:
            self.dropped += len(self._queue) == self._queue.maxlen
            self._queue.append(span)

    def close(self, seconds: float = CLOSE_S) -> None:
        """Send what waits, if that takes no longer than this."""
        self._ending.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            is_ending = self._ending.wait(self._every_s)
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
                if not self._deliver(batch):
                    break
            if is_ending:
                return

    def _deliver(self, batch: list[SpanRecord]) -> bool:
        """Try to send a batch until it has arrived or is given up; False: given up."""
        for attempt in range(TRIES_MAX):
            if self._send(batch):
                self._succeeded()
                return True
            self._failed()
            if self._ending.wait(PAUSES_S[min(attempt, len(PAUSES_S) - 1)]):
                break
        self.dropped += len(batch)
        return False

    def _succeeded(self) -> None:
        if self._failures:
            log.info("the collector of traces answers again", dropped_spans=self.dropped)
        self._failures = 0

    def _failed(self) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning("traces cannot be sent; the newest spans are kept", kept_max=self._queue.maxlen)


def trace_exporter(address: str | None, coordinator: str) -> TraceExporter | None:
    """What sends traces to this address, if there is one; ConfigError without the packages."""
    if not address:  # an empty variable means none, as OpenTelemetry has it
        return None
    if not _ADDRESS.fullmatch(address):
        raise ConfigError(
            f"coordinator.traces = {address[:200]!r}: expected http://host:4318 or https://host:4318",
            hint="it may come from OTEL_EXPORTER_OTLP_ENDPOINT; traces are sent by OTLP over HTTP, not by gRPC",
        )
    try:
        send = _otlp(f"{address.rstrip('/')}/v1/traces", coordinator)
    except ImportError as error:
        raise ConfigError(
            f"coordinator.traces = {address} needs OpenTelemetry, which is not installed: {error}",
            hint="pip install 'phalanx[otel]', or unset coordinator.traces and OTEL_EXPORTER_OTLP_ENDPOINT",
        ) from error
    return TraceExporter(send)


def _otlp(endpoint: str, coordinator: str) -> Send:
    """OTLP over HTTP, as protobuf."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what fails is told once, by us
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)
    service = {
        "service.name": "phalanx",
        "service.instance.id": coordinator,
        "service.version": __version__,
    }
    resource = Resource(service)
    sampled = TraceFlags(TraceFlags.SAMPLED)

    def context(trace: str, key: str) -> SpanContext:
        return SpanContext(_number(trace, 16), _number(key, 8), is_remote=False, trace_flags=sampled)

    def readable(span: SpanRecord) -> Any:
        return ReadableSpan(
            span.name,
            context(span.trace, span.key),
            None if span.parent is None else context(span.trace, span.parent),
            resource,
            span.attributes,
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=int(span.start * 1e9),
            end_time=int(span.end * 1e9),
        )

    def send(batch: list[SpanRecord]) -> bool:
        try:
            return exporter.export([readable(span) for span in batch]) is SpanExportResult.SUCCESS
        except Exception:  # whatever the library raises concerns traces alone
            return False

    return send


def _number(text: str, size: int) -> int:
    """An id of so many bytes that follows from a text; never 0, which means none."""
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1
