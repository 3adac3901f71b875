"""Lines about one job, one node or one device: what the screens show beside their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.api.schema.cluster import DeviceView, NodeView
from phalanx.api.schema.jobs import JobView, StoryLine, TaskView
from phalanx.cli.job_table import job_status
from phalanx.cli.labels import label
from phalanx.cli.members import standing
from phalanx.cli.output import clean, size, span, time_of_day
from phalanx.cli.shell_exits import shell_code
from phalanx.cli.top.heat_map import rack_of
from phalanx.cli.top.snapshot import ClusterSnapshot
from phalanx.core.model.amounts import plural

TASK_HEADINGS = ("ID", "STATUS", "NODE", "GPUS", "TRY", "EXIT", "TIME", "REASON")


def cluster_line(snapshot: ClusterSnapshot, alarms: int, width: int) -> str:
    """The cluster in one line, for the top of every screen. GPUs are those of all nodes.

    Where that is too narrow, the alarms come first and the coordinator's name is left out.
    """
    cluster, by = snapshot.cluster, snapshot.cluster.coordinator
    who = f"{by.name} {by.role}  " if by is not None else ""
    devices = sum(len(node.devices) for node in snapshot.nodes)
    gpus = f"{cluster.devices_free}/{devices} GPUs free  " if devices else ""
    tasks = cluster.tasks
    counts = (
        f"{cluster.nodes_online}/{cluster.nodes} nodes  {gpus}"
        f"{tasks.running + tasks.assigned} running  {tasks.pending} waiting"
    )
    told = plural(alarms, "alarm")
    whole = clean(f"{who}{counts}  {told}")
    return whole if len(whole) <= width else clean(f"{told}  {counts}")


def node_line(node: NodeView) -> str:
    """A node in one line."""
    status = "Drained" if node.drained and node.status == "Online" else node.status
    note = node.drain_reason if node.drained else node.note
    said = f": {note}" if note else ""
    return clean(
        f"{node.name} ({rack_of(node)}) {status}{said}  {node.cores_free}/{node.cores} cores,"
        f" {size(node.memory_free_bytes)} of {size(node.memory_bytes)} free"
    )


def device_line(device: DeviceView | None, job: JobView | None, now: float) -> str:
    """A device and who holds it, in one line."""
    if device is None:
        return "no GPUs"
    kind = f"GPU {device.index} {device.kind} {size(device.memory_bytes)}"
    if device.out_of_service:
        return clean(f"{kind}  out of service: {device.out_of_service}")
    if device.task is None:
        return clean(f"{kind}  free")
    idle = f"  IDLE for {span(0.0, device.idle_s)}" if device.idle_s else ""
    who = f"{device.number or device.task}"
    if job is not None:
        who += f" {job.name} of {job.user} in {job.queue}, {job_status(job)} for {span(job.started_at, now)}"
    return clean(f"{kind}  held by {who}{idle}")


def job_title(job: JobView) -> str:
    """A job in one line."""
    return clean(
        f"{label(job)} {job.name}  {job.user}  {job.queue}  {job_status(job)}  {plural(job.tasks, 'task')}"
    )


def story_lines(lines: Iterable[StoryLine], shows_task: bool) -> list[str]:
    """The event history, the oldest first."""
    return [
        clean(
            f"{time_of_day(line.at)[:8]}  {f'{line.number} ' if shows_task and line.number else ''}{line.text}"
        )
        for line in lines
    ]


def task_cells(task: TaskView, now: float) -> tuple[str, ...]:
    """A task under TASK_HEADINGS."""
    cells: Sequence[object] = (
        label(task),
        standing(task),
        task.node or task.nominated_node or "-",
        ",".join(map(str, task.devices)) or "-",
        task.attempt,
        "-" if (code := shell_code(task.exit_code, task.reason)) is None else code,
        span(task.started_at, task.ended_at or now),
        task.message or task.reason or "-",
    )
    return tuple(clean(str(cell)) for cell in cells)
