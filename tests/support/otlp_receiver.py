"""A collector of OpenTelemetry for tests: an HTTP server on loopback that reads OTLP and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class ReceivedSpan:
    """One span as it arrived."""

    def __init__(self, span: Any, resource: dict[str, str]) -> None:
        self.trace: bytes = span.trace_id
        self.id: bytes = span.span_id
        self.parent: bytes = span.parent_span_id
        self.name: str = span.name
        self.start = span.start_time_unix_nano / 1e9
        self.end = span.end_time_unix_nano / 1e9
        self.attributes: dict[str, Any] = {each.key: _value(each.value) for each in span.attributes}
        self.is_error = span.status.code == 2
        self.message: str = span.status.message
        self.resource = resource


class OtlpReceiver:
    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.requests = 0
        self.may_answer = threading.Event()  # until then it is a slow one
        self.may_answer.set()
        self.address = ""

    def of(self, **attributes: object) -> list[ReceivedSpan]:
        """The spans that have these attributes, `job_id` for `phalanx.job.id`."""
        wanted = {f"phalanx.{key.replace('_', '.', 1)}": value for key, value in attributes.items()}
        return [span for span in list(self.spans) if wanted.items() <= span.attributes.items()]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in list(self.spans) if span.name == name]

    def receive(self, path: str, kind: str, body: bytes) -> int:
        self.requests += 1
        self.may_answer.wait()
        if path != "/v1/traces" or kind != "application/x-protobuf":
            return 400
        message = ExportTraceServiceRequest.FromString(body)
        for of_resource in message.resource_spans:
            resource = {each.key: _value(each.value) for each in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [ReceivedSpan(span, resource) for span in scope.spans]
        return 200


@contextmanager
def an_otlp_receiver(port: int = 0) -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self.send_response(receiver.receive(self.path, self.headers["Content-Type"], body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        receiver.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.may_answer.set()
            server.shutdown()
            thread.join()


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
