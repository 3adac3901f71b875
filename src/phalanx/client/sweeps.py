"""Sweeps from Python: rows in pieces, failed tasks again, a job again with changes; calls and the clients' methods.

Rows are sent before the job, which names them. A coordinator that took over in between knows none of them, so they are
sent again; the job itself has a request id, and is accepted once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from msgspec import structs

from phalanx.api.schema.exports import NONE
from phalanx.api.schema.params import rows_of_objects
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.submit_fields import SubmitFields, SweepFields
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest, RowsPiece, RowsTaken
from phalanx.client import calls
from phalanx.client.calls import Call, new_request_id, path_of
from phalanx.client.ids import AnyId
from phalanx.client.plain_values import plain_value
from phalanx.client.submit_names import NAMES
from phalanx.client.surroundings import Export, with_surroundings
from phalanx.client.sweep_files import Read, each_line, from_csv, from_json
from phalanx.errors import BadRequest, Conflict

PIECE_ROWS = 4096
PIECE_BYTES_MAX = 768 * 1024  # a request may have a mebibyte
TRIES = 3
LOST = "UploadUnknown"
_MAPPINGS = {"env": "env", "params": "param"}  # fields of jobs: how their parts are called in changes


def pieces(upload: str, columns: Sequence[str], rows: Sequence[list[str]]) -> Iterator[Call[RowsTaken]]:
    """The calls that send rows, in order."""
    number, coming = 0, iter(rows)
    while some := list(islice(coming, PIECE_ROWS)):
        waiting = [some]
        while waiting:
            part = waiting.pop()
            body = msgspec.json.encode(RowsPiece(upload, number, list(columns), part))
            if len(body) > PIECE_BYTES_MAX and len(part) > 1:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
                continue
            yield Call(method="POST", path="/v1/rows", answer=RowsTaken, body=body, repeatable=True)
            number += 1


def retry(job: AnyId, cancelled: bool, request_id: str | None) -> Call[SubmitReply]:
    return _again(job, "retry", RetryTasksRequest(request_id or new_request_id(), cancelled))


def resubmit(job: AnyId, changes: Mapping[str, Any], request_id: str | None) -> Call[SubmitReply]:
    return _again(job, "resubmit", ResubmitRequest(dict(_single(changes)), request_id or new_request_id()))


def _single(changes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each change by the name that it has in the request: those of variables and parameters one by one."""
    for name, value in changes.items():
        kind = _MAPPINGS.get(name)
        if kind is not None and isinstance(value, Mapping):
            yield from ((f"{kind}.{each}", plain_value(name, value)[each]) for each in value)
        else:
            field = NAMES.get(name, name)
            yield field, plain_value(field, value)


def _again(job: AnyId, verb: str, request: RetryTasksRequest | ResubmitRequest) -> Call[SubmitReply]:
    return Call(
        method="POST",
        path=path_of("jobs", job, verb),
        answer=SubmitReply,
        body=msgspec.json.encode(request),
        repeatable=True,
        request_id=request.request_id or "",
    )


class _Sweep:
    """A submission with rows: the calls that make it, once more from the first if the rows were lost."""

    def __init__(self, request: SubmitRequest, columns: Sequence[str], rows: Sequence[list[str]]) -> None:
        if not rows:
            raise BadRequest("rows: there is none")
        if request.request_id is None:
            request = structs.replace(request, request_id=new_request_id())
        self._request, self._columns, self._rows = request, columns, rows
        self._tries = 0

    def calls(self) -> Iterator[Call[Any]]:
        """Each piece, and then the job."""
        upload = new_request_id()
        yield from pieces(upload, self._columns, self._rows)
        yield calls.submit(
            structs.replace(self._request, rows=upload), {"export": NONE}
        )  # it has been chosen

    def may_go_on(self, error: Conflict) -> bool:
        """Whether to begin anew after this error."""
        self._tries += 1
        return error.reason == LOST and self._tries < TRIES


def _sweep(request: SubmitRequest | None, fields: SweepFields) -> _Sweep | Call[SubmitReply]:
    """What a submission takes: one call, or with rows several."""
    given = {name: fields.pop(name) for name in _ROWS if name in fields}  # type: ignore[misc]
    plain: SubmitFields = fields  # the rows are not among them any more
    if not given:
        return calls.submit(request, plain)
    if request is not None:
        raise TypeError("give a SubmitRequest or its fields, not both")
    if len(given) > 1:
        raise TypeError(f"{' and '.join(given)}: give one of them")
    ((name, value),) = given.items()
    columns, rows = _ROWS[name](value)
    export = plain.pop("export", None)
    request = with_surroundings(SubmitRequest(**plain), export)  # type: ignore[arg-type, misc]
    return _Sweep(request, columns, rows)


def _of_objects(given: Any) -> Read:
    if not (rows := list(given)):
        raise BadRequest("rows: there is none")
    return rows_of_objects(rows, "rows")


def _of_file(read: Callable[[str], Read], file: str | os.PathLike[str]) -> Read:
    return read(os.fspath(file))


_ROWS: dict[str, Callable[[Any], Read]] = {
    "rows": _of_objects,
    "each_line": partial(_of_file, each_line),
    "from_csv": partial(_of_file, from_csv),
    "from_json": partial(_of_file, from_json),
}


class SweepCalls:
    """The methods of `Client` that are about sweeps."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def submit_rows(
        self,
        request: SubmitRequest,
        columns: Sequence[str],
        rows: Sequence[list[str]],
        *,
        export: Export = None,
    ) -> SubmitReply:
        """Submit a sweep over rows, each with one text for each column; `export` as in `submit`."""
        return self._sent_sweep(_Sweep(with_surroundings(request, export), columns, rows))

    def retry(self, job: AnyId, *, cancelled: bool = False, request_id: str | None = None) -> SubmitReply:
        """Run the failed tasks of an ended job again, or that of `job.index` alone: a new job with the same indexes."""
        found: SubmitReply = self._ask(retry(job, cancelled, request_id))
        return found

    def resubmit(
        self,
        job: AnyId,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        request_id: str | None = None,
        **fields: Any,
    ) -> SubmitReply:
        """Submit a job once more with changes, such as `gpus=2, env={"SEED": 7}`, or as a dict."""
        found: SubmitReply = self._ask(resubmit(job, {**(changes or {}), **fields}, request_id))
        return found

    def _submitted(self, request: SubmitRequest | None, fields: SweepFields) -> SubmitReply:
        sweep = _sweep(request, fields)
        if isinstance(sweep, _Sweep):
            return self._sent_sweep(sweep)
        found: SubmitReply = self._ask(sweep)
        return found

    def _sent_sweep(self, sweep: _Sweep) -> SubmitReply:
        while True:
            try:
                answer: Any = None
                for call in sweep.calls():
                    answer = self._ask(call)
                return answer  # type: ignore[no-any-return]
            except Conflict as error:
                if not sweep.may_go_on(error):
                    raise


class AsyncSweepCalls:
    """The methods of `AsyncClient` that are about sweeps."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def submit_rows(
        self,
        request: SubmitRequest,
        columns: Sequence[str],
        rows: Sequence[list[str]],
        *,
        export: Export = None,
    ) -> SubmitReply:
        return await self._sent_sweep(_Sweep(with_surroundings(request, export), columns, rows))

    async def retry(
        self, job: AnyId, *, cancelled: bool = False, request_id: str | None = None
    ) -> SubmitReply:
        found: SubmitReply = await self._ask(retry(job, cancelled, request_id))
        return found

    async def resubmit(
        self,
        job: AnyId,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        request_id: str | None = None,
        **fields: Any,
    ) -> SubmitReply:
        found: SubmitReply = await self._ask(resubmit(job, {**(changes or {}), **fields}, request_id))
        return found

    async def _submitted(self, request: SubmitRequest | None, fields: SweepFields) -> SubmitReply:
        reads_file = len(_ROWS.keys() & fields.keys() - {"rows"}) > 0
        from asyncio import to_thread  # here, for the commands of a shell do without it

        sweep = await to_thread(_sweep, request, fields) if reads_file else _sweep(request, fields)
        if not isinstance(sweep, _Sweep):
            found: SubmitReply = await self._ask(sweep)
            return found
        return await self._sent_sweep(sweep)

    async def _sent_sweep(self, sweep: _Sweep) -> SubmitReply:
        while True:
            try:
                answer: Any = None
                for call in sweep.calls():
                    answer = await self._ask(call)
                return answer  # type: ignore[no-any-return]
            except Conflict as error:
                if not sweep.may_go_on(error):
                    raise
