"""The metrics as Prometheus text, written by Prometheus' own library.

It is imported with the first scrape: a coordinator that nobody scrapes does not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from phalanx.coordinator.metrics.families import COUNTERS, GAUGES, HISTOGRAMS, Moment

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def exposition(moment: Moment) -> bytes:
    """The text of one scrape."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    class Families(Collector):
        def collect(self) -> Iterator[Metric]:
            return _families(moment)

    return generate_latest(Families())


def _families(moment: Moment) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = [(GaugeMetricFamily, row) for row in GAUGES] + [(CounterMetricFamily, row) for row in COUNTERS]
    for kind, row in kinds:
        family = kind(row.name, row.help, labels=row.labels)
        for values, value in row.samples(moment):
            family.add_metric(values, float(value))
        yield family
    for each in HISTOGRAMS:
        histogram = each.histogram(moment.recorder)
        yield HistogramMetricFamily(
            each.name, each.help, buckets=histogram.buckets(), sum_value=histogram.sum_s
        )
