"""Single fields of a request: is this text, number, size, duration, program, selector or pattern one we can take?

Each check names the field, shows the value and says what would be right. A wrong word is BadRequest, a number
out of its range is Unprocessable. What the fields mean together is `api/schema/submission.py`'s business.

The limits of a program are those of the kernel that will be asked to start it, so that a task which could never start
is refused while its user is still looking. RE2 matches the patterns of users (`core/model/patterns.py`): it never goes
back over what it tried, and so it has no backreferences, look-ahead or possessive repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from phalanx.core.model.amounts import (
    BYTES_MAX,
    MILLI,
    MILLICORES,
    SECONDS_MAX,
    parse_memory,
    parse_seconds,
    written,
)
from phalanx.core.model.containers import IMAGE_BYTES_MAX, MOUNTS_MAX, parse_image, parse_mount
from phalanx.core.model.job import (
    LAST,
    TAGS_MAX,
    Command,
    Job,
    is_job_name,
    is_name,
    is_object,
    is_tag,
    reads_as_number,
)
from phalanx.core.model.json_depth import JSON_DEPTH_MAX
from phalanx.core.model.resources import Cores
from phalanx.errors import BadRequest, Unprocessable

SHOWN_MAX = 80
TERMS_MAX = 32
SELECTOR_MAX = 4096

ARGV_MAX = 4096
ARG_BYTES_MAX = 128 * 1024 - 1  # the kernel's limit for one string of exec, less its closing NUL
ARGV_BYTES_MAX = 1024 * 1024
ENV_MAX = 1000
ENV_BYTES_MAX = 1024 * 1024
PATH_BYTES_MAX = 4095

PATTERN_BYTES_MAX = 500
PATTERNS_MAX = 100  # of a job, in all its rules
SYNTAX = "RE2 reads it: no backreferences, look-ahead, look-behind, \\Z or possessive repeats"


def check_number(field: str, value: float, least: float, most: float) -> None:
    """Refuse a number outside `least` to `most`; NaN is outside of everything."""
    if not least <= value <= most:
        raise Unprocessable(
            f"{field}: {shown(value)} is out of range, give {least} to {most}", reason="OutOfRange"
        )


def read_cores(field: str, value: Cores, most: float) -> Cores:
    """Cores, whole or in thousandths, or a refusal. What is whole is an int, however it was written."""
    check_number(field, value, 0, most)
    millis = MILLICORES[value]
    if millis != value * MILLI and millis / MILLI != value:
        raise Unprocessable(
            f"{field}: {shown(value)} has more than three decimals, give whole cores or parts such as 0.5 or 1.25",
            reason="OutOfRange",
        )
    return written(millis)


def check_text(field: str, value: str, bytes_max: int) -> int:
    """The length in bytes of a text that a program can be given, or a refusal."""
    if "\0" in value:
        raise BadRequest(f"{field}: {shown(value)} holds a NUL byte, which no program can be given")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise BadRequest(f"{field}: {shown(value)} is not text that UTF-8 can spell") from None
    if size > bytes_max:
        raise BadRequest(f"{field}: {size} bytes are too many, at most {bytes_max} are allowed")
    return size


def check_name(field: str, value: str) -> None:
    """Refuse what may not name a queue, a node or a group."""
    if not is_name(value):
        raise BadRequest(
            f"{field}: {shown(value)} is not a name: write 1 to 63 lower-case letters, digits, '.', '_' or"
            " '-', with a letter or digit at both ends"
        )


def check_job_name(field: str, value: str) -> None:
    """Refuse what may not name a job or a workflow."""
    if is_job_name(value):
        return
    if reads_as_number(value) or value == LAST:
        meant = "the newest job" if value == LAST else "a job or task by its number"
        better = shown(f"job-{value}"[:SHOWN_MAX])
        raise BadRequest(f"{field}: {shown(value)} is not a name: it means {meant}; write such as {better}")
    raise BadRequest(
        f"{field}: {shown(value)} is not a name: write 1 to 63 letters, digits, '.', '_' or '-', with a letter or"
        " digit at both ends"
    )


def check_object(field: str, value: str) -> None:
    """Refuse what may not name an object of Kubernetes."""
    if not is_object(value):
        raise BadRequest(
            f"{field}: {shown(value)} is not namespace/name, such as default/pod-1: lower-case letters, digits and '-',"
            " at most 63 and 253 of them"
        )


def read_tags(field: str, tags: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Tags in order, or a refusal."""
    if not tags:
        return ()
    check_count(field, len(tags), TAGS_MAX)
    for key, value in tags.items():
        if not is_tag(key, value):
            raise BadRequest(
                f"{field}: {shown(key)}: {shown(value)} is not a tag: write letters, digits, '-', '_' and '.', in a"
                " value at most 63 of them, in a key also '/'"
            )
    return tuple(sorted(tags.items()))


class SelectorTerm(Struct, frozen=True):
    """One condition on one tag."""

    key: str
    sign: Literal["=", "!=", "there", "absent"]
    value: str = ""

    def holds(self, tags: Mapping[str, str]) -> bool:
        if self.sign in ("there", "absent"):
            return (self.key in tags) == (self.sign == "there")
        return (tags.get(self.key) == self.value) == (self.sign == "=")


class Selector(Struct, frozen=True):
    """Conditions that all have to hold. Without any, it selects everything."""

    terms: tuple[SelectorTerm, ...] = ()

    def selects_group(self, job: Job, number: int) -> bool:
        """Whether the tasks of a group, which have the tags of their job too, are asked for."""
        if not self.terms:
            return True
        tags = dict(job.tags) | dict(job.groups[number].tags)
        return all(term.holds(tags) for term in self.terms)

    def selects(self, job: Job) -> bool:
        """Whether a group of the job is asked for."""
        return not self.terms or any(self.selects_group(job, number) for number in range(len(job.groups)))


def read_selector(text: str) -> Selector:
    """Read `app=train,tier!=test,owner,!draft`, or refuse it."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > TERMS_MAX:
        raise BadRequest(f"selector: {len(parts)} conditions are too many, at most {TERMS_MAX} are read")
    return Selector(tuple(_term(part) for part in parts))


def _term(part: str) -> SelectorTerm:
    sign = next((each for each in ("!=", "==", "=") if each in part), "")
    key, _, value = (each.strip() for each in part.partition(sign)) if sign else (part, "", "")
    is_absent = not sign and key.startswith("!")
    key = key.removeprefix("!") if is_absent else key
    if not is_tag(key, value):
        raise BadRequest(
            f"selector: {part[:80]!r} is not a condition: write KEY=VALUE, KEY!=VALUE, KEY or !KEY"
        )
    if not sign:
        return SelectorTerm(key, "absent" if is_absent else "there")
    return SelectorTerm(key, "!=" if sign == "!=" else "=", value)


def check_count(field: str, count: int, most: int) -> None:
    """Refuse a list with too many members."""
    if count > most:
        raise BadRequest(f"{field}: {count} are too many, at most {most} are allowed")


def read_memory(field: str, value: int | str, of: str = "a task") -> int:
    """Bytes of memory, from a number or from text such as 16GiB; so few that nothing runs in them are refused."""
    if not isinstance(value, str):
        check_number(field, value, 0, BYTES_MAX)
    try:
        return parse_memory(value, of)
    except ValueError as error:
        raise BadRequest(f"{field}: {error}") from None


def read_duration(field: str, value: float | str) -> float:
    """Seconds above zero, from a number or from text such as 1h30m."""
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except ValueError as error:
            raise BadRequest(f"{field}: {error}") from None
    if not 0 < value <= SECONDS_MAX:
        raise Unprocessable(
            f"{field}: {shown(value)} is out of range, give more than 0 and at most {SECONDS_MAX} seconds",
            reason="OutOfRange",
        )
    return float(value)


def read_span(field: str, value: float | str, most: float | None = None) -> float:
    """A duration that may also be nothing at all."""
    seconds = 0.0 if value in (0, "0", "0s") else read_duration(field, value)
    if most is not None:
        check_number(field, seconds, 0, most)
    return seconds


def read_deadline(field: str, value: float | str, now: float) -> float:
    """An instant to come: so long from now, or written as a date and a time with its zone."""
    if not isinstance(value, str) or "T" not in value.upper():
        return now + read_duration(field, value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadRequest(
            f"{field}: {shown(value)} is not a time with its zone: write 2027-01-31T08:00:00Z, or 2h from now"
        )
    if at.timestamp() <= now:
        raise Unprocessable(f"{field}: {shown(value)} has passed", reason="OutOfRange")
    return at.timestamp()


def shown(value: object) -> str:
    """A value as an error may show it: short, and free of what a terminal would obey."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"  # Python refuses to spell very long ones
    text = repr(value[: SHOWN_MAX + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def read_command(
    command: list[str],
    shell: str | None,
    env: dict[str, str],
    cwd: str | None,
    field: str = "",
    image: str = "",
    mounts: Sequence[str] = (),
    split_output: bool = False,
) -> Command:
    """The command of a group; `field` is put before each name, as in `groups[0].`."""
    if command and shell is not None:
        raise BadRequest(f"{field}shell: given beside command: give one of them, not both")
    if cwd is not None:
        check_cwd(cwd, f"{field}cwd")
    check_env(env, f"{field}env")
    # The user's string is one argument of the shell, so nothing of ours is ever read as shell words.
    argv = tuple(command) if shell is None else ("/bin/sh", "-c", shell)
    check_argv(argv, f"{field}command" if shell is None else f"{field}shell")
    check_container(image, mounts, field)
    return Command(argv, env, cwd, image, tuple(mounts), split_output)


def check_container(image: str, mounts: Sequence[str], field: str) -> None:
    """Refuse what names no image, and mounts that are none or have no container."""
    check_text(f"{field}image", image, IMAGE_BYTES_MAX)
    if "phalanx-vps/" in image:
        raise BadRequest(
            f"{field}image: {shown(image)} is a snapshot of a VPS, which only that VPS can be started from",
            hint="phalanx vps restore",
        )
    check_count(f"{field}mounts", len(mounts), MOUNTS_MAX)
    if mounts and not image:
        raise BadRequest(f"{field}mounts: given without an image: what runs on the node sees all of it")
    try:
        if image:
            parse_image(image)
    except ValueError as error:
        raise BadRequest(f"{field}image: {shown(image)} is not an image: {error}") from None
    targets: set[str] = set()
    for text in mounts:
        check_text(f"{field}mounts", text, PATH_BYTES_MAX)
        try:
            mount = parse_mount(text)
        except ValueError as error:
            raise BadRequest(f"{field}mounts: {shown(text)} is not a mount: {error}") from None
        if mount.target in targets:
            raise BadRequest(f"{field}mounts: {shown(mount.target)} is given twice, each place once")
        targets.add(mount.target)


def check_argv(argv: tuple[str, ...], field: str) -> None:
    if not argv or not argv[0] or (field.endswith("shell") and not argv[-1]):
        raise BadRequest(
            f"{field}: nothing to run: give command (a list such as ['python', 'train.py'])"
            " or shell (one string for /bin/sh)"
        )
    check_count(field, len(argv), ARGV_MAX)
    total = sum([check_text(field, each, ARG_BYTES_MAX) for each in argv])
    if total > ARGV_BYTES_MAX:
        raise BadRequest(f"{field}: {total} bytes in all are too many, at most {ARGV_BYTES_MAX} are allowed")


def check_env(env: dict[str, str], field: str) -> None:
    check_count(field, len(env), ENV_MAX)
    total = 0
    for name, value in env.items():
        if not name or "=" in name or name[0].isdigit():
            rule = "it must not be empty, begin with a digit or hold '='"
            raise BadRequest(f"{field}: {shown(name)} is not a variable name: {rule}")
        total += check_text(f"{field}[{shown(name)}]", f"{name}={value}", ARG_BYTES_MAX)
    if total > ENV_BYTES_MAX:
        raise BadRequest(f"{field}: {total} bytes in all are too many, at most {ENV_BYTES_MAX} are allowed")


def check_cwd(cwd: str, field: str) -> None:
    check_text(field, cwd, PATH_BYTES_MAX)
    if not cwd.startswith("/"):
        raise BadRequest(f"{field}: {shown(cwd)} is not an absolute path: begin it with '/'")


class PatternBudget:
    """What all patterns of one job may amount to together."""

    def __init__(self) -> None:
        self._count = 0
        self._size = 0

    def take(self, field: str, pattern: str) -> None:
        """Refuse a pattern that cannot be compiled, or that is too much with those before it."""
        from phalanx.core.model.patterns import (
            PROGRAM_MAX,
            Unreadable,
            program_size,
        )  # a command needs no RE2

        check_text(field, pattern, PATTERN_BYTES_MAX)
        try:
            size = program_size(pattern)
        except Unreadable as error:
            raise BadRequest(
                f"{field}: {shown(pattern)} is not a regular expression: {error} ({SYNTAX})"
            ) from None
        self._count += 1
        self._size += size
        if self._count > PATTERNS_MAX:
            raise BadRequest(
                f"{field}: {shown(pattern)} is one too many, give at most {PATTERNS_MAX} patterns in all rules of a job"
            )
        if self._size > PROGRAM_MAX:
            raise BadRequest(
                f"{field}: {shown(pattern)} brings the patterns of this job to {self._size} instructions, "
                f"give at most {PROGRAM_MAX}: fewer or shorter patterns, and smaller counts than in 'a{{100}}'"
            )


def too_deep(where: str) -> BadRequest:
    """JSON at this field is nested deeper than anything of ours reads."""
    return BadRequest(f"{where}: nested too deep, at most {JSON_DEPTH_MAX} levels are read", reason="TooDeep")
