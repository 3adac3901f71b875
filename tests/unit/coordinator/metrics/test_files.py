"""The files of the metrics: replaced whole, rotated, and no reason to stop when a disk fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.api.server.limits import TimeSlices
from phalanx.clock import SystemClock
from phalanx.config import load
from phalanx.coordinator.main import metrics_files, recorder_of
from phalanx.coordinator.metrics import files as under_test
from phalanx.coordinator.metrics.board import MetricsBoard
from phalanx.coordinator.metrics.density import Density
from phalanx.coordinator.metrics.files import MetricsFiles
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.task_events import TaskEvents
from phalanx.core.cluster.inputs import Cancel
from phalanx.errors import ConfigError
from tests.support.builders import a_job
from tests.unit.coordinator.metrics.recorded import RecordedCluster
from tests.unit.coordinator.metrics.views import FakeRequests

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Written:
    """A recorded cluster and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = RecordedCluster(recorder=Recorder(Density(), TaskEvents()))
        self.cluster.add_node("n1", cores=2)
        clock = SystemClock()
        board = MetricsBoard(
            FakeRequests(self.cluster.state), self.cluster.recorder, clock, TimeSlices(clock)
        )
        self.files = MetricsFiles(folder, board, clock)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "events.log").read_text().splitlines()]


async def test_nothing_is_written_while_nothing_happens(tmp_path: Path):
    written = Written(tmp_path / "metrics")
    await written.files._write()
    assert written.names() == ["metrics.json", "task_worker_density.json"]
    (written.folder / "metrics.json").unlink()
    await written.files._write()
    assert written.names() == ["task_worker_density.json"]
    written.cluster.submit(a_job())
    await written.files._write()
    assert written.names() == ["events.log", "metrics.json", "task_worker_density.json"]


async def test_the_log_is_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(under_test, "LOG_BYTES_MAX", 300)
    written = Written(tmp_path)
    for _ in range(12):
        written.cluster.submit(a_job(target="n1", cores=1))
        await written.files._write()
    logs = [name for name in written.names() if name.startswith("events")]
    assert logs == ["events.log", "events.log.1", "events.log.2", "events.log.3"]
    assert all((tmp_path / name).stat().st_size <= 300 for name in logs)


async def test_many_tasks_that_end_together_are_one_line(tmp_path: Path):
    written = Written(tmp_path)
    job = a_job(array="0-999")
    written.cluster.submit(job)
    written.cluster.give(Cancel(job.id, None))
    await written.files._write()
    ends = [line for line in written.lines() if line["type"] == "TASK_CANCELLED"]
    assert [(line["job_id"], line["tasks"]) for line in ends] == [(job.id, 1000)]


async def test_lines_that_cannot_be_written_are_dropped_oldest_first():
    events = TaskEvents(lines_max=2)
    for number in range(5):
        events.note(float(number), "TASK_SUBMITTED", a_job(id=f"j{number}"), None)
    assert [json.loads(line)["job_id"] for line in events.take()] == ["j3", "j4"]
    assert (events.dropped, events.take()) == (3, [])


async def test_a_disk_that_fails_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    written = Written(tmp_path)
    (tmp_path / "metrics.json").mkdir()  # so that nothing can take its place
    await written.files._write()
    await written.files._write()
    told = [each for each in caplog.records if "cannot write metrics" in each.getMessage()]
    assert len(told) == 1
    (tmp_path / "metrics.json").rmdir()
    await written.files._write()
    assert json.loads((tmp_path / "metrics.json").read_text())["counters"]["workers_registered"] == 1


async def test_a_folder_that_cannot_be_made_is_an_error_at_start(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"coordinator\.metrics_dir .*file/below cannot be written"):
        Written(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("given", "has_density", "folder"),
    [
        ({}, False, None),
        ({"HOST_METRICS_DIR": "/m"}, False, "/m"),
        ({"ORCHESTRATOR_METRICS_DIR": "/o"}, False, "/o"),
        ({"HOST_METRICS_ENABLE_DENSITY_PLOT": "true", "HOST_METRICS_DENSITY_BUCKET_SEC": "30"}, True, None),
    ],
)
async def test_the_names_of_the_seed(given: dict[str, str], has_density: bool, folder: str | None):
    section = load({}, environment=given).coordinator
    recorder = recorder_of(section)
    assert (recorder.density is not None) == has_density
    assert (recorder.task_events is not None) == bool(given)
    assert section.metrics_dir == (None if folder is None else Path(folder))
    if recorder.density is not None:
        assert recorder.density.bucket_s == 30.0


async def test_without_a_folder_the_density_goes_beside_the_state(tmp_path: Path):
    settings = load(
        {"coordinator.metrics_density": True, "coordinator.state_dir": str(tmp_path)}, environment={}
    )
    made = metrics_files(settings.coordinator, Written(tmp_path / "x").files._board, SystemClock())
    assert made is not None
    assert (tmp_path / "metrics").is_dir()


@pytest.mark.parametrize("wrong", ["maybe", "2"])
async def test_a_wrong_switch_is_refused_by_name(wrong: str):
    with pytest.raises(ConfigError, match=r"coordinator\.metrics_density .* expected true or false"):
        load({}, environment={"HOST_METRICS_ENABLE_DENSITY_PLOT": wrong})


@pytest.mark.parametrize("wrong", ["-1", "cheap", "1e9", "nan"])
async def test_a_wrong_price_is_refused_by_name(wrong: str):
    with pytest.raises(ConfigError, match=r"runner\.cost_per_hour .* expected a number from 0 to 1000000"):
        load({}, environment={"WORKER_COST_PER_HOUR": wrong})


def density_of(written: Written) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads((written.folder / under_test.DENSITY).read_text())
    return found


async def test_the_density_goes_on_after_a_restart(tmp_path: Path):
    first = Written(tmp_path)
    first.cluster.submit(a_job(array="0-6"))
    await first.files.close()
    before = density_of(first)
    again = Written(tmp_path)
    again.cluster.submit(a_job())
    await again.files._write()
    after = density_of(again)
    counts = [each["count"] for each in after["task_density_buckets"]]
    assert sum(counts) == 8  # type: ignore[arg-type]
    nodes = before["worker_count_series"]
    assert after["worker_count_series"][: len(nodes)] == nodes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"bucket_seconds": 60}',
        b'{"bucket_seconds": 7, "task_density_buckets": [], "worker_count_series": []}',
        b'{"bucket_seconds": 0, "task_density_buckets": [], "worker_count_series": []}',
        b'{"bucket_seconds": 60, "task_density_buckets": [{"bucket_start": "x"}], "worker_count_series": []}',
        b"\xff\xfe",
    ],
)
async def test_a_density_file_that_cannot_be_used_is_replaced(tmp_path: Path, content: bytes):
    (tmp_path / under_test.DENSITY).write_bytes(content)
    written = Written(tmp_path)
    written.cluster.submit(a_job())
    await written.files._write()
    assert [each["count"] for each in density_of(written)["task_density_buckets"]] == [1]


async def test_a_density_file_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(under_test, "DENSITY_BYTES_MAX", 100)
    first = Written(tmp_path)
    first.cluster.submit(a_job(array="0-6"))
    await first.files.close()
    again = Written(tmp_path)
    again.cluster.submit(a_job())
    await again.files._write()
    assert [each["count"] for each in density_of(again)["task_density_buckets"]] == [1]
