"""Workflows as people write them: the text of a file, which the coordinator reads."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.apply import PlanFile


class WorkflowFilesRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The files of one workflow, as `phalanx workflow submit -f` reads them: all of it is accepted, or nothing."""

    files: list[PlanFile]
    cwd: str | None = None  # the folder of commands that name none; absent: that of the runner
    deadline: float | str | None = None  # instead of that of the file
    budget: float | None = None  # likewise
    strict: bool = False  # refuse what cannot be honoured, instead of a warning
    allow_infeasible: bool = False  # wait even if no node of today could ever hold a stage
    request_id: str | None = None  # the same as the Idempotency-Key header
    exported: dict[
        str, str
    ] = {}  # the caller's environment, as of `submit`; programs of task types do not get it
