"""Files of attempts: what may be kept in the place for files, what each is called there, and the list of artifacts.

A name is `SPAN/JOB/POSITION.ATTEMPT/KIND/PATH`. Job ids begin with their time, and SPAN is the beginning of the id, so
that old jobs stand before new ones and no folder holds the jobs of more than nine hours. Names are made here and
nowhere else; of a path that a task chose nothing is believed. Reading and writing files is left to the shells.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from msgspec import Struct

from phalanx.core.model.job import JobId, is_job_id
from phalanx.core.model.orders import AttemptKey

FileKind = Literal["stdout", "stderr", "result", "artifacts", "manifest"]
KINDS: tuple[FileKind, ...] = get_args(FileKind)
LOG_KINDS: tuple[FileKind, ...] = ("stdout", "stderr")
RESULT_PATH, MANIFEST_PATH = "result.json", "manifest.json"

PATH_BYTES_MAX = 512  # S3 has names of 1024 bytes, of which ours is a part
PART_BYTES_MAX = 200  # a name in a folder has 255, and some characters take three
DEPTH_MAX = 32
ARTIFACTS_MAX = 100_000  # of one attempt, whatever its runner allows
MANIFEST_BYTES_MAX = 16 << 20
ARTIFACTS_LATE = "its artifacts are not in the place for files yet"  # an end says so, and readers look for it
ARTIFACTS_LATE_S = 86_400.0  # artifacts that have not come for so long after the end are taken for lost
LOG_RUNS_MAX = 16  # parts of one log between which bytes were not kept
NUMBER_MAX = 1 << 53
SPAN_SIZE = 5

_QUOTED = {
    "%": "%25",
    "#": "%23",
    "\\": "%5C",
}  # a folder on disk cannot hold all names that end in # and a number
_QUOTE = re.compile(r"[%#\\]")
_NAME = re.compile(r"([0-9a-z]{5})/([0-9a-z]{26})/([0-9]{1,16})\.([0-9]{1,16})/([a-z]+)/(.+)", re.DOTALL)


class FileKey(Struct, frozen=True):
    """One file of one attempt. A log's path is the offset at which its bytes begin."""

    attempt: AttemptKey
    kind: FileKind
    path: str

    @property
    def name(self) -> str:
        """Its name in the place for files, or ValueError."""
        if wrong := why_bad_path(self.path):
            raise ValueError(wrong)
        return folder_of(self.attempt, self.kind) + _QUOTE.sub(lambda found: _QUOTED[found[0]], self.path)


class Artifact(Struct, frozen=True):
    """One file of a task's own."""

    path: str
    size: int
    sha256: str


class Manifest(Struct, frozen=True):
    """All artifacts of an attempt; it is written when they are there. `left_out` says of what else why it is not."""

    files: tuple[Artifact, ...]
    left_out: tuple[str, ...] = ()
    left_out_count: int = 0

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


def folder_of(attempt: AttemptKey, kind: FileKind | None = None) -> str:
    """What the names of an attempt's files begin with, or ValueError."""
    job, position, number = attempt
    if not is_job_id(job):
        raise ValueError(f"{job[:80]!r} is not a job id")
    if not (0 <= position <= NUMBER_MAX and 0 <= number <= NUMBER_MAX):
        raise ValueError(f"task {position} or attempt {number} is out of range")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"{kind[:80]!r} is not a kind of file: expected {', '.join(KINDS)}")
    folder = f"{job[:SPAN_SIZE]}/{job}/{position}.{number}/"
    return folder if kind is None else f"{folder}{kind}/"


def part_path(job: JobId) -> str:
    """As which file of an attempt its runner sends the result of a job that was merged into it."""
    return f"{job}.json"


def job_of_part(kind: FileKind, path: str) -> JobId:
    """The job whose result such a file is; empty: it is another file."""
    return path.removesuffix(".json") if kind == "result" and path != RESULT_PATH else ""


def read_name(name: str) -> FileKey | None:
    """The file that a name in the place for files stands for; None if it is not one of ours."""
    found = _NAME.fullmatch(name)
    if found is None or found[5] not in KINDS or not found[2].startswith(found[1]):
        return None
    path = found[6]
    for sign, quoted in _QUOTED.items():
        path = path.replace(quoted, sign) if sign != "%" else path
    return FileKey((found[2], int(found[3]), int(found[4])), found[5], path.replace("%25", "%"))


def why_bad_path(path: str) -> str:
    """Why a path cannot be one below a folder of ours; empty: it can."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return f"path {path[:80]!a}: expected UTF-8"
    if not path or size > PATH_BYTES_MAX:
        return f"path {path[:80]!r}: expected 1 to {PATH_BYTES_MAX} bytes, not {size}"
    if not path.isprintable():
        return f"path {path[:80]!r}: expected printable characters"
    parts = path.split("/")
    if len(parts) > DEPTH_MAX:
        return f"path {path[:80]!r}: expected at most {DEPTH_MAX} folders"
    for part in parts:
        if part in ("", ".", ".."):
            return f"path {path[:80]!r}: expected names between single slashes, none of them . or .."
        if len(_QUOTE.sub("%00", part).encode()) > PART_BYTES_MAX:
            return f"path {path[:80]!r}: expected names of at most {PART_BYTES_MAX} bytes"
    return ""
