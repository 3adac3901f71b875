"""The parameters of a sweep, as REST shows them: what it goes over, in few words."""

from __future__ import annotations

from phalanx.core.model.job import Job

VALUES_SHOWN = 200  # characters of a parameter's values
PARTS_SHOWN = 50


def params_view(job: Job) -> dict[str, str]:
    """The values of each parameter as they were written, such as 1..5; of rows, how many there are."""
    if job.params is None:
        return {}
    rows = job.params.rows
    of_rows = {} if rows is None else dict.fromkeys(rows.names, f"{rows.count} rows")
    return of_rows | {axis.name: _short(str(axis.first(PARTS_SHOWN))) for axis in job.params.axes}


def _short(text: str) -> str:
    return text if len(text) <= VALUES_SHOWN else f"{text[: VALUES_SHOWN - 1]}…"
