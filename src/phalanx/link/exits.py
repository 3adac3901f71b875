"""What a runner says about how an attempt ended: what cannot be true of it, in words; empty: nothing is wrong."""

from __future__ import annotations

import re

from phalanx.core.model.dispatch import MERGE_MAX
from phalanx.core.model.orders import RESULT_BYTES_MAX, RESULT_FILE_BYTES_MAX, Exit
from phalanx.core.model.task_results import NAMES_BYTES_MAX, PartResult
from phalanx.core.model.usage import wrong_usage
from phalanx.link.claims import TIME_MAX, WORD_MAX, wrong_count

TEXT_MAX = 256 * 1024  # of a message about an end
CODES = -(1 << 31), 1 << 32
DIGEST = re.compile(r"(?:[0-9a-f]{64})?")


def wrong_exit(exit: Exit) -> str:
    code, began, ended = exit.code or 0, exit.started_at or 0.0, exit.ended_at or 0.0
    if not CODES[0] <= code <= CODES[1]:
        return f"exit.code = {code}: expected {CODES[0]} to {CODES[1]}"
    if len(exit.message) > TEXT_MAX or len(exit.stderr_tail) > TEXT_MAX:
        return f"exit: expected texts of at most {TEXT_MAX} characters"
    if wrong := _wrong_result(exit, "exit"):
        return wrong
    if (exit.parts or exit.loaded is not None) and (wrong := _wrong_beside(exit)):
        return wrong
    if not (-TIME_MAX <= began <= TIME_MAX and -TIME_MAX <= ended <= TIME_MAX):
        return f"exit: started_at = {began}, ended_at = {ended}: expected seconds since 1970"
    return "" if exit.usage is None else wrong_usage(exit.usage)


def _wrong_result(of: Exit | PartResult, name: str) -> str:
    """About a result that travels with the end, or is in the place for files."""
    if of.result and len(of.result.encode()) > RESULT_BYTES_MAX:
        return f"{name}.result: {len(of.result)} characters, expected at most {RESULT_BYTES_MAX} bytes"
    if not of.result_bytes and not of.result_sha256:
        return ""
    if wrong := wrong_count(f"{name}.result_bytes", of.result_bytes, RESULT_FILE_BYTES_MAX):
        return wrong
    if not of.result_sha256 or not of.result_bytes or not DIGEST.fullmatch(of.result_sha256):
        return (
            f"{name}.result_sha256 = {of.result_sha256[:80]!r}: expected 64 digits with {name}.result_bytes"
        )
    return ""


def _wrong_beside(exit: Exit) -> str:
    """About the results of merged tasks, and what the result says of its node."""
    if len(exit.parts) > MERGE_MAX:
        return f"exit.parts: {len(exit.parts)} are listed, expected at most {MERGE_MAX}"
    for part in exit.parts:
        if len(part.job) > WORD_MAX:
            return f"exit.parts: {part.job[:80]!r} is no job"
        if wrong := _wrong_result(part, "exit.parts"):
            return wrong
    names = () if exit.loaded is None else (*exit.loaded.cached, *exit.loaded.evicted)
    if max(len(names), sum(len(name.encode()) for name in names)) > NAMES_BYTES_MAX:
        return f"exit.loaded: expected names of at most {NAMES_BYTES_MAX} bytes together"
    return ""
