"""The density series: FlowMesh's file, with its numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from phalanx.coordinator.metrics import density as under_test
from phalanx.coordinator.metrics.density import Density, WrittenBucket, WrittenDensity, WrittenNodes
from phalanx.coordinator.metrics.recorder import Recorder
from tests.support.builders import a_job
from tests.unit.coordinator.metrics.recorded import RecordedCluster

MINUTE = 1_760_000_040.0  # a multiple of 60


@pytest.mark.parametrize(("bucket_s", "per_minute"), [(60.0, 3.0), (30.0, 6.0)])
def test_three_submissions_in_one_interval(bucket_s: float, per_minute: float):
    """C29."""
    density = Density(bucket_s)
    for at in (MINUTE, MINUTE + 10, MINUTE + 29.9):
        density.submitted(at, 1)
    document = density.document(MINUTE + 30)
    assert document["bucket_seconds"] == bucket_s
    assert document["task_density_buckets"] == [
        {"bucket_start": "2025-10-09T08:54:00.000+00:00", "count": 3, "tasks_per_minute": per_minute}
    ]


def test_intervals_begin_at_multiples_of_their_length():
    density = Density(60.0)
    density.submitted(MINUTE + 59.9, 1)
    density.submitted(MINUTE + 60.0, 2)
    buckets = density.document(MINUTE + 100)["task_density_buckets"]
    assert [(each["bucket_start"][11:16], each["count"]) for each in buckets] == [("08:54", 1), ("08:55", 2)]


@pytest.mark.parametrize(("end_at", "last"), [(10.0, "08:55"), (200.0, "08:57")])
def test_an_empty_interval_follows_at_the_end(end_at: float, last: str):
    density = Density(60.0)
    density.submitted(MINUTE, 1)
    density.end(MINUTE + end_at)
    buckets = density.document(MINUTE + end_at)["task_density_buckets"]
    assert [each["count"] for each in buckets] == [1, 0]
    assert buckets[-1]["bucket_start"][11:16] == last
    assert buckets[-1]["tasks_per_minute"] == 0.0


def test_an_equal_number_of_nodes_is_noted_once_a_second():
    density = Density()
    for at, nodes in ((0.0, 1), (0.5, 1), (0.6, 2), (0.9, 1), (1.8, 1), (1.9, 1), (2.9, 1)):
        density.counted(MINUTE + at, nodes)
    series = density.document(MINUTE)["worker_count_series"]
    assert [(each["ts"][17:23], each["active_workers"]) for each in series] == [
        ("00.000", 1),
        ("00.600", 2),
        ("00.900", 1),
        ("01.900", 1),
        ("02.900", 1),
    ]


def test_both_series_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(under_test, "BUCKETS_MAX", 3)
    monkeypatch.setattr(under_test, "SERIES_MAX", 4)
    density = Density(60.0)
    for number in range(10):
        density.submitted(MINUTE + 60 * number, 1)
        density.counted(MINUTE + 60 * number, number)
    document = density.document(MINUTE)
    assert [each["bucket_start"][11:16] for each in document["task_density_buckets"]] == [
        "09:01",
        "09:02",
        "09:03",
    ]
    assert [each["active_workers"] for each in document["worker_count_series"]] == [6, 7, 8, 9]


def test_a_cluster_fills_them():
    density = Density(60.0)
    cluster = RecordedCluster(recorder=Recorder(density))
    cluster.now = MINUTE
    cluster.add_node("n1", cores=4)
    cluster.now += 5
    cluster.add_node("n2", cores=4)
    cluster.submit(a_job(array="0-2"))
    cluster.beat("n1")
    cluster.now += 2
    cluster.beat("n1")
    cluster.wait(29.0)  # n2 is lost
    document = density.document(cluster.now)
    assert [each["count"] for each in document["task_density_buckets"]] == [3]
    assert [each["active_workers"] for each in document["worker_count_series"]] == [1, 2, 2, 1]


def test_a_series_that_goes_on_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(under_test, "BUCKETS_MAX", 3)
    monkeypatch.setattr(under_test, "SERIES_MAX", 2)
    buckets = [WrittenBucket(datetime.fromtimestamp(MINUTE + 60 * n, UTC), n) for n in (4, 1, 3, 2)]
    nodes = [WrittenNodes(datetime.fromtimestamp(MINUTE + n, UTC), n) for n in range(5)]
    density = Density(60.0)
    density.go_on(WrittenDensity(60.0, buckets, nodes))
    document = density.document(MINUTE)
    assert [each["count"] for each in document["task_density_buckets"]] == [2, 3, 4]
    assert [each["active_workers"] for each in document["worker_count_series"]] == [3, 4]


def test_shorter_intervals_become_longer_ones():
    buckets = [WrittenBucket(datetime.fromtimestamp(MINUTE + 30 * n, UTC), 5) for n in range(3)]
    density = Density(60.0)
    density.go_on(WrittenDensity(30.0, buckets, []))
    assert [each["count"] for each in density.document(MINUTE)["task_density_buckets"]] == [10, 5]
