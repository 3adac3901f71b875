"""`phalanx density plot`: submissions and active nodes over time, drawn in the terminal or to a PNG or SVG file.

It reads `task_worker_density.json`, which a coordinator with `coordinator.metrics_density` writes. matplotlib, which
draws the files, is an extra and is imported when it is needed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Meta, MsgspecError, Struct, json

from phalanx.cli.output import note
from phalanx.errors import BadRequest, ConfigError

FILE_BYTES_MAX = 64 << 20
FORMATS = (".png", ".svg")
HEIGHT = 8  # lines of a chart
WIDTH_MAX = 160
MARGIN = 9  # characters for the numbers on the left
BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "    ####"
Instant = Annotated[datetime, Meta(tz=True)]


class Bucket(Struct):
    """Submissions in one interval."""

    bucket_start: Instant
    count: Annotated[int, Meta(ge=0)]
    tasks_per_minute: Annotated[float, Meta(ge=0)]


class WorkerCount(Struct):
    """How many nodes were active from an instant on."""

    ts: Instant
    active_workers: Annotated[int, Meta(ge=0)]


class DensityFile(Struct):
    """What the coordinator wrote."""

    generated_at: str
    bucket_seconds: Annotated[float, Meta(gt=0)]
    task_density_buckets: list[Bucket]
    worker_count_series: list[WorkerCount]

    def times(self) -> tuple[float, float]:
        """From the first instant of both series to the end of the last."""
        starts = [each.bucket_start.timestamp() for each in self.task_density_buckets]
        seen = [each.ts.timestamp() for each in self.worker_count_series]
        first = min(starts + seen)
        return first, max([each + self.bucket_seconds for each in starts] + seen + [first + 1.0])


def plot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A task_worker_density.json.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a .png or .svg file.")
    ] = None,
) -> None:
    """Plot task submissions and active nodes over time.

    Without -o the plot is drawn in the terminal. PNG and SVG files need matplotlib: pip install 'phalanx[plot]'.
    """
    series = read_density(file)
    if not series.task_density_buckets and not series.worker_count_series:
        raise BadRequest(f"{file} has no samples yet", hint="submit something, and try again")
    if output is None:
        width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
        for line in chart(series, width, _blocks()):
            typer.echo(line)
        return
    if output.suffix.lower() not in FORMATS:
        raise BadRequest(f"--output {output}: expected a file that ends in {' or '.join(FORMATS)}")
    _draw(series, output)
    note(f"wrote {output}")


def read_density(file: Path) -> DensityFile:
    """The file, or an error that names what is wrong with it."""
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise BadRequest(f"{file} is over the limit of {FILE_BYTES_MAX} bytes")
        return json.decode(file.read_bytes(), type=DensityFile)
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from error
    except MsgspecError as error:
        hint = "a coordinator with coordinator.metrics_density = true writes one"
        raise BadRequest(f"{file} is not a density file: {error}", hint=hint) from error


def _draw(series: DensityFile, output: Path) -> None:
    try:
        from phalanx.cli.density_picture import draw
    except ImportError as error:
        raise ConfigError(
            f"--output {output} needs matplotlib, which is not installed",
            hint="pip install 'phalanx[plot]'; without --output the plot is drawn in the terminal",
        ) from error
    try:
        draw(series, output)
    except OSError as error:
        raise BadRequest(f"cannot write {output}: {error.strerror}") from error


def _blocks() -> str:
    """What bars are made of, as far as the terminal can show it."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN_BLOCKS
    return BLOCKS


def chart(series: DensityFile, width: int, blocks: str) -> Iterator[str]:
    """Two charts over the same time."""
    first, last = series.times()
    columns = max(10, width - MARGIN)
    step = (last - first) / columns
    rates = [0.0] * columns
    for bucket in series.task_density_buckets:
        begin = bucket.bucket_start.timestamp() - first
        for at in range(
            int(begin / step), max(int(begin / step) + 1, int((begin + series.bucket_seconds) / step))
        ):
            if at < columns:
                rates[at] = max(rates[at], bucket.tasks_per_minute)
    counts, seen = [0.0] * columns, 0.0
    points = iter(sorted((each.ts.timestamp(), each.active_workers) for each in series.worker_count_series))
    point = next(points, None)
    for at in range(columns):
        while point is not None and point[0] <= first + (at + 1) * step:
            seen, point = float(point[1]), next(points, None)
        counts[at] = seen
    yield from _bars("Tasks submitted per minute", rates, blocks)
    yield ""
    yield from _bars("Active nodes", counts, blocks)
    yield " " * MARGIN + _axis(first, last, columns)


def _bars(title: str, values: Sequence[float], blocks: str) -> Iterator[str]:
    top = max(values) or 1.0
    steps = len(blocks) - 1
    yield f"{title} (at most {max(values):g})"
    for line in range(HEIGHT, 0, -1):
        number = f"{top * line / HEIGHT:8.4g} " if line in (HEIGHT, HEIGHT // 2) else " " * MARGIN
        filled = (value / top * HEIGHT - (line - 1) for value in values)
        yield number + "".join(blocks[round(min(1.0, max(0.0, each)) * steps)] for each in filled).rstrip()


def _axis(first: float, last: float, columns: int) -> str:
    """The first and the last instant, by the local clock, with the day where it is not the same."""
    begin, end = datetime.fromtimestamp(first).astimezone(), datetime.fromtimestamp(last).astimezone()
    form = "%H:%M:%S" if begin.date() == end.date() else "%d %b %H:%M"
    left, right = begin.strftime(form), end.strftime(form)
    return left + right.rjust(columns - len(left))
