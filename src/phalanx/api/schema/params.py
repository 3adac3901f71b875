"""Parameters of a sweep as they travel over REST and as job files write them, and how they become `Params`.

`params` maps names to values: a list, or a text as on the command line (`0.1,0.01`, `1..5`, `0..100..10`). `each` lists
rows: objects with the same keys, or single values, which are then called `line`. Every value becomes text. SweepRows of
large files come in pieces before the job does (`coordinator/row_uploads.py`) and are checked here, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from phalanx.api.schema.fields import check_count, check_text, shown
from phalanx.core.model.amounts import plural
from phalanx.core.model.array import RANGES_MAX, TASKS_MAX, Array
from phalanx.core.model.job import Group, Job
from phalanx.core.model.parameters import (
    LINE,
    PARAMS_MAX,
    ROW_BYTES_MAX,
    ROWS_BYTES_MAX,
    VALUE_BYTES_MAX,
    Axis,
    Params,
    Range,
    RowPacker,
    SweepRows,
)
from phalanx.core.model.template import (
    INDEX,
    TemplateError,
    index_in_program,
    is_parameter_name,
    used_names,
)
from phalanx.errors import BadRequest, Unprocessable

USES_MAX = 64  # of parameters in a command
EACH_MAX = 50_000  # rows inside a request; more come in pieces before it
_RANGE = re.compile(r"(-?[0-9]{1,15})\.\.(-?[0-9]{1,15})(?:\.\.(-?[0-9]{1,15}))?")
_NUMBERS = re.compile(r"[-+.0-9eE]*")
_DOTS = re.compile(r"[0-9]\.\.[-+.0-9]")
_VARIABLE = re.compile(r"PHALANX_PARAM_([A-Za-z0-9_]+)")
_USE = re.compile(r"\{[A-Za-z_]")


def read_params(
    params: Mapping[str, Any], each: Sequence[Any], rows: SweepRows | None, field: str = ""
) -> Params | None:
    """The parameters of a job, None if it has none; or a refusal that names the field, the row and the value."""
    if rows is not None and each:
        raise BadRequest(f"{field}each: given beside rows: give one of them")
    check_count(f"{field}params", len(params), PARAMS_MAX)
    if each:
        rows = _read_each(each, f"{field}each")
    axes = tuple(_read_axis(name, value, f"{field}params") for name, value in params.items())
    if rows is None and not axes:
        return None
    read = Params(axes, rows)
    if twice := [name for name, times in Counter(read.names).items() if times > 1]:
        raise BadRequest(
            f"{field}params: {shown(twice[0])} is also a column of the rows: choose another name"
        )
    if read.count > TASKS_MAX:
        raise Unprocessable(
            f"{field}params: {read.count} combinations are too many, at most {TASKS_MAX} are allowed",
            reason="OutOfRange",
            hint=" × ".join([*(f"{len(axis)} of {axis.name}" for axis in axes), *_rows_hint(rows)]),
        )
    return read


def sweep_array(params: Params | None, array: Array | None, at_once: int = 0) -> Array | None:
    """The array of a sweep: all of its tasks, numbered from 1, or those that `array` names."""
    if params is None:
        return array
    if array is None:
        return Array(((1, params.count, 1),), at_once)
    for first, count, step in array.ranges:
        last = first + (count - 1) * step
        if first < 1 or last > params.count:
            wrong = first if first < 1 else last
            raise BadRequest(
                f"array: there is no task {wrong}: the parameters make tasks 1 to {params.count}"
            )
    return Array(array.ranges, array.at_once or at_once)


def check_templates(params: Params | None, groups: Sequence[Group], field: str = "command") -> list[str]:
    """Refuse what is no template in the command of a sweep; the warnings about what is."""
    if params is None or not groups:
        return []
    argv = groups[0].command.argv
    try:
        used = used_names(argv, params.names)
    except TemplateError as error:
        raise BadRequest(f"{field}: {error}", reason="BadTemplate") from None
    uses = sum(len(_USE.findall(word)) for word in argv)
    if uses > USES_MAX:
        raise BadRequest(
            f"{field}: {uses} parameters are too many, at most {USES_MAX} may stand in a command"
        )
    read = {*used, *chain.from_iterable(map(_VARIABLE.findall, argv))}
    unused = [name for name in params.names if name not in read]
    if not unused or any("PHALANX_PARAMS" in word for word in argv):
        return []
    names = ", ".join(unused[:8]) + (", …" if len(unused) > 8 else "")
    if read:
        return [f"not in the command: {names}; tasks find it as PHALANX_PARAM_{unused[0]}"]
    first = unused[0]
    same = f"the command is the same for every task: no {{{first}}} in it (parameters: {names})"
    return [f"{same}; tasks find it as the variable PHALANX_PARAM_{first} alone"]


def index_warnings(job: Job) -> list[str]:
    """What is said of an array without parameters whose `{i}` is in a program text, where it is not replaced."""
    place = index_in_program(job.groups[0].command.argv) if job.array and job.params is None else None
    if place is None:
        return []
    text = f"word {place + 1} of the command is program code, in which {{i}} is not replaced"
    return [f"{text}: its index is the variable PHALANX_ARRAY_INDEX"]


def check_columns(names: Sequence[str], field: str) -> tuple[str, ...]:
    """The names of columns, or a refusal."""
    check_count(field, len(names), PARAMS_MAX)
    if not names:
        raise BadRequest(f"{field}: there is no column")
    for number, name in enumerate(names, start=1):
        _check_name(name, f"{field}: column {number}")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise BadRequest(f"{field}: {shown(twice[0])} names two columns, each needs its own name")
    return tuple(names)


def check_rows(rows: Sequence[Sequence[str]], names: Sequence[str], first: int, field: str) -> None:
    """Refuse rows that are not one text for each column; `first` is the number of the first, counted from 1."""
    lengths, flat = set(map(len, rows)), list(chain.from_iterable(rows))
    is_plain = lengths <= {len(names)} and max(map(len, flat), default=0) <= VALUE_BYTES_MAX // 4
    if is_plain and len(names) * VALUE_BYTES_MAX <= ROW_BYTES_MAX and _is_text("".join(flat)):
        return
    for number, row in enumerate(rows, start=first):
        if len(row) != len(names):
            columns = ", ".join(names[:8])
            raise BadRequest(
                f"{field}: row {number} has {plural(len(row), 'value')}, expected {len(names)} ({columns})"
            )
        sizes = [
            check_text(f"{field}: row {number}, {name}", value, VALUE_BYTES_MAX)
            for name, value in zip(names, row, strict=True)
        ]
        if sum(sizes) > ROW_BYTES_MAX:
            raise BadRequest(
                f"{field}: row {number} has {sum(sizes)} bytes, at most {ROW_BYTES_MAX} are allowed"
            )


def _is_text(value: str) -> bool:
    """Whether programs can be given it; `check_text` says why not."""
    try:
        return "\0" not in value and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False


def as_value(value: Any, where: str) -> str:
    """A value of JSON as text: texts as they are, all others as JSON writes them."""
    if isinstance(value, str):
        return value
    if value is None:
        raise BadRequest(f"{where}: there is no value (null): give one, such as an empty text")
    try:
        return msgspec.json.encode(value, enc_hook=_native).decode()
    except TypeError:
        raise BadRequest(
            f"{where}: {shown(value)} is not a value that JSON has, give a text or a number"
        ) from None


def _native(value: Any) -> Any:
    """A scalar or an array of NumPy and the like as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value))


def rows_of_objects(objects: Sequence[Any], field: str, first: int = 1) -> tuple[list[str], list[list[str]]]:
    """The columns of a list of objects, and their rows; single values have the column `line`."""
    if not isinstance(objects[0], Mapping):
        return [LINE], [
            [each if type(each) is str else _line(each, f"{field}: row {number}")]
            for number, each in enumerate(objects, start=first)
        ]
    names = [str(name) for name in objects[0]]
    keys = objects[0].keys()
    return names, [
        [
            value if type(value) is str else as_value(value, f"{field}: row {number}")
            for value in each.values()
        ]
        if type(each) is dict and each.keys() == keys and [*each] == names
        else _row(each, names, f"{field}: row {number}")
        for number, each in enumerate(objects, start=first)
    ]


def _line(value: Any, where: str) -> str:
    if isinstance(value, Mapping):
        raise BadRequest(f"{where} is an object, and the rows before it are single values")
    return as_value(value, where)


def _row(value: Any, names: list[str], where: str) -> list[str]:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{where}: {shown(value)} is not an object, but the rows before it are")
    if missing := [name for name in names if name not in value]:
        raise BadRequest(f"{where} has no {shown(missing[0])}, which row 1 has")
    if len(value) != len(names):
        more = next(name for name in value if name not in names)
        raise BadRequest(f"{where} has {shown(more)}, which row 1 does not have")
    return [as_value(value[name], f"{where}, {name}") for name in names]


def _read_each(each: Sequence[Any], field: str) -> SweepRows:
    if len(each) > EACH_MAX:
        raise BadRequest(
            f"{field}: {len(each)} rows are too many in one request, at most {EACH_MAX} are allowed",
            hint="send them in pieces: phalanx submit --from-json FILE, client.submit(rows=…), POST /v1/rows",
        )
    names, rows = rows_of_objects(each, field)
    columns = check_columns(names, field)
    check_rows(rows, columns, 1, field)
    packer = RowPacker()
    packer.add(rows)
    packed = packer.rows(columns)
    if sum(map(len, packed.blocks)) > ROWS_BYTES_MAX:
        raise BadRequest(
            f"{field}: more than {ROWS_BYTES_MAX >> 20} MiB, compressed, are too much for one sweep"
        )
    return packed


def _read_axis(name: str, value: Any, field: str) -> Axis:
    _check_name(name, field)
    where = f"{field}.{name}"
    parts: list[str | Range]
    if isinstance(value, str):
        texts = [each.strip() for each in value.split(",")]
        check_count(f"{where}: ranges", sum(".." in each for each in texts), RANGES_MAX)
        parts = [each if each and ".." not in each else _part(each, value, where) for each in texts]
    elif isinstance(value, list | tuple):
        parts = [as_value(each, where) for each in value]
    elif isinstance(value, Mapping):
        raise BadRequest(
            f"{where}: {shown(value)} is not a list of values, give such as [0.1, 0.01] or '1..5'"
        )
    else:
        parts = [as_value(value, where)]
    if not parts:
        raise BadRequest(f"{where}: there is no value: give at least one")
    check_count(where, len(parts), TASKS_MAX)
    for part in parts:
        if isinstance(part, str):
            check_text(where, part, VALUE_BYTES_MAX)
    return Axis(name, tuple(parts))


def _part(text: str, whole: str, where: str) -> str | Range:
    found = _RANGE.fullmatch(text)
    if found is None:
        if _NUMBERS.fullmatch(text) and _DOTS.search(text):  # two patterns: one for both takes quadratic time
            raise BadRequest(
                f"{where}: {shown(text)} is not a range: give whole numbers, such as 1..5 or 0..100..10"
            )
        if not text:
            raise BadRequest(
                f"{where}: {shown(whole)} has an empty value: write empty ones in a list, "
                f"such as params: {{{where.rpartition('.')[2]}: ['', a]}} in a job file"
            )
        return text
    first, last = int(found[1]), int(found[2])
    step = int(found[3]) if found[3] else 1 if last >= first else -1
    if step == 0 or (last - first) * step < 0:
        raise BadRequest(
            f"{where}: {shown(text)} never comes to its end: write FIRST..LAST or FIRST..LAST..STEP"
        )
    return first, (last - first) // step + 1, step


def _check_name(name: str, field: str) -> None:
    if name == INDEX:
        raise BadRequest(f"{field}: {shown(name)} is the index of the task, choose another name")
    if not is_parameter_name(name):
        raise BadRequest(
            f"{field}: {shown(name)} is not the name of a parameter: write letters, digits and '_', no digit first"
        )


def _rows_hint(rows: SweepRows | None) -> list[str]:
    return [] if rows is None else [f"{rows.count} rows"]
