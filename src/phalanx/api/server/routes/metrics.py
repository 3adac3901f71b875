"""The routes of the metrics: Prometheus text, and JSON."""

from __future__ import annotations

from phalanx.api.schema.metrics import MetricsReport
from phalanx.api.server.messages import HttpRequest, Response, json_reply, text_reply
from phalanx.api.server.route import Route, Service

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(service: Service, _http_request: HttpRequest) -> Response:
    return text_reply(await service.commands.metrics(), MEDIA_TYPE)


async def metrics_report(service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.metrics_report())


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        permission="read",
        handler=metrics,
        summary="Metrics in the Prometheus text format, of this coordinator process.",
        answer=None,
        media=MEDIA_TYPE,
    ),
    Route(
        method="GET",
        path="/v1/metrics.json",
        permission="read",
        handler=metrics_report,
        summary="The same metrics as JSON.",
        answer=MetricsReport,
    ),
)
