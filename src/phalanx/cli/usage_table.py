"""Usage in words and small graphs, for `phalanx usage` and `phalanx show`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.api.schema.jobs import UsageSummary
from phalanx.api.schema.usage import CurvePoint, DeviceUsage, TaskUsage, UsageReply, UsageSums
from phalanx.cli.labels import label
from phalanx.cli.output import Table, fields, time_of_day
from phalanx.core.model.amounts import describe_bytes, describe_seconds, plural

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"


def percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.0f}%"


def usage_fields(used: UsageSummary | None) -> list[tuple[str, object]]:
    """What an attempt used in all, for the lines of `show`."""
    if used is None:
        return []
    return [
        ("CPU used", _with_share(describe_seconds(used.cpu_s), used.cpu_efficiency, "of its cores")),
        (
            "Memory peak",
            _with_share(describe_bytes(used.memory_peak_bytes), used.memory_share, "of its request"),
        ),
        ("I/O", f"{describe_bytes(used.read_bytes)} read, {describe_bytes(used.written_bytes)} written"),
        ("GPU use", _device_words(used)),
    ]


def _device_words(used: UsageSummary) -> str | None:
    if used.device_use is None:
        return None
    words = f"{percent(used.device_use)} mean, {describe_bytes(used.device_memory_peak_bytes)} memory at most"
    return f"{words}, idle for {describe_seconds(used.device_idle_s)}" if used.device_idle_s else words


def _with_share(text: str, share: float | None, of: str) -> str:
    return text if share is None else f"{text} ({percent(share)} {of})"


def task_lines(task: TaskUsage, unicode: bool) -> Iterable[str]:
    """One task: numbers, and curves while it runs."""
    where = f" on {task.node}" if task.node else ""
    yield from fields(
        [
            ("Task", label(task)),
            ("Status", f"{task.status}{where}, attempt {task.attempt}, {describe_seconds(task.run_s)}"),
            ("Note", task.note),
            *_now_fields(task),
            *(usage_fields(task.summary)),
            *((f"GPU {each.index}", _device(each)) for each in task.devices),
        ]
    )
    yield from curves(task, unicode)


def _now_fields(task: TaskUsage) -> list[tuple[str, object]]:
    now = task.now
    if now is None:
        return []
    rates = f"{describe_bytes(int(now.read_bytes_per_s))}/s read, {describe_bytes(int(now.written_bytes_per_s))}/s"
    asked = f" of {describe_bytes(task.memory_bytes)}" if task.memory_bytes else ""
    return [
        ("Cores now", f"{now.cores:.2f} of {task.cores}"),
        ("Memory now", f"{describe_bytes(now.memory_bytes)}{asked}"),
        ("I/O now", f"{rates} written"),
        ("Processes", now.processes),
    ]


def _device(device: DeviceUsage) -> str:
    whose = "of its processes" if device.memory_is_own else "in use"
    words = f"{percent(device.use)} now, {percent(device.mean_use)} mean, {describe_bytes(device.memory_bytes)} {whose}"
    return f"{words}; idle for {describe_seconds(device.idle_s)}" if device.idle_s else words


def curves(task: TaskUsage, unicode: bool) -> Iterable[str]:
    """A line for each curve, the oldest point at the left; a point may stand for more time the older it is."""
    points = task.points
    if len(points) < 2:
        return
    yield ""
    most_cores = max(1.0, float(task.cores), *(each.cores for each in points))
    yield _curve("cores", [each.cores for each in points], most_cores, f"0 to {most_cores:.3g}", unicode)
    most = max(task.memory_bytes, *(each.memory_bytes for each in points))
    memory = [float(each.memory_bytes) for each in points]
    yield _curve("memory", memory, most, f"0 to {describe_bytes(most)}", unicode)
    io = [each.read_bytes_per_s + each.written_bytes_per_s for each in points]
    if any(io):
        yield _curve("I/O", io, max(io), f"0 to {describe_bytes(int(max(io)))}/s", unicode)
    if any(each.device_use is not None for each in points):
        yield _curve("GPU", [each.device_use or 0.0 for each in points], 1.0, "0 to 100%", unicode)
    yield f"{'':<7} {_span(points)}"


def _span(points: Sequence[CurvePoint]) -> str:
    begins = points[0].at - points[0].span_s
    return f"{time_of_day(begins)} to {time_of_day(points[-1].at)}, older values at longer intervals"


def _curve(name: str, values: Sequence[float], most: float, scale: str, unicode: bool) -> str:
    signs = BLOCKS if unicode else PLAIN_BLOCKS
    top = len(signs) - 1
    drawn = "".join(signs[min(top, round(top * value / most))] if most > 0 else signs[0] for value in values)
    return f"{name:<7} {drawn}  {scale}"


def tasks_table(reply: UsageReply) -> Table:
    """The tasks of a job, one to a row."""
    has_devices = any(task.gpus for task in reply.tasks)
    more = ("GPU", "GPU MEMORY") if has_devices else ()
    table = Table(
        "ID",
        "STATUS",
        "NODE",
        "TIME",
        "CORES",
        "CPU",
        "MEMORY",
        "PEAK",
        "OF REQUEST",
        "READ",
        "WRITTEN",
        *more,
        "NOTE",
        narrows={"NOTE": 12, "NODE": 8},
        spare=("READ", "WRITTEN", "OF REQUEST", "GPU MEMORY", "TIME"),
    )
    for task in reply.tasks:
        used, now = task.summary, task.now
        cells: tuple[object, ...] = (
            label(task),
            task.status,
            task.node,
            describe_seconds(task.run_s),
            None if now is None else f"{now.cores:.2f}",
            None if used is None else percent(used.cpu_efficiency),
            None if now is None else describe_bytes(now.memory_bytes),
            None if used is None else describe_bytes(used.memory_peak_bytes),
            None if used is None else percent(used.memory_share),
            None if used is None else describe_bytes(used.read_bytes),
            None if used is None else describe_bytes(used.written_bytes),
        )
        if has_devices:
            memory_bytes = 0 if used is None else used.device_memory_peak_bytes
            use = None if used is None else percent(used.device_use)
            cells += (use, describe_bytes(memory_bytes) if memory_bytes else None)
        table.add(*cells, _note(task))
    return table


def _note(task: TaskUsage) -> str:
    idle = [each for each in task.devices if each.idle_s]
    return f"{plural(len(idle), 'GPU')} idle" if idle else task.note


def totals_line(totals: UsageSums) -> str:
    """Sums over all attempts of a job."""
    parts = [
        f"{plural(totals.tasks, 'task')}, {plural(totals.attempts, 'attempt')}",
        f"{totals.core_hours:.2f} core-hours, {totals.core_hours_used:.2f} used"
        + (f" ({percent(totals.cpu_efficiency)})" if totals.cpu_efficiency is not None else ""),
    ]
    if totals.device_hours:
        use = "" if totals.device_use is None else f", {percent(totals.device_use)} mean use"
        parts.append(f"{totals.device_hours:.2f} GPU-hours{use}, {totals.device_hours_idle:.2f} idle")
    parts.append(f"peak {describe_bytes(totals.memory_peak_bytes)}")
    parts.append(f"cost {totals.cost:.2f}")
    return "In all: " + "; ".join(parts)
