"""Single fields of a request: is this text, number, size, duration, program or pattern one we can take?

Each check names the field, shows the value and says what would be right. A wrong word is BadRequest, a number
out of its range is Unprocessable. What the fields mean together is `api/schema/submission.py`'s business.

The limits of a program are those of the kernel that will be asked to start it, so that a task which could never start
is refused while its user is still looking. RE2 matches the patterns of users (`core/model/patterns.py`): it never goes
back over what it tried, and so it has no backreferences, look-ahead or possessive repeats.
"""

from __future__ import annotations

from phalanx.core.model.ids import is_name, is_object
from phalanx.core.model.job import TAGS_MAX, Command, Selector, is_tag, parse_selector
from phalanx.core.model.quantity import (
    BYTES_MAX,
    MILLI,
    SECONDS_MAX,
    millicores,
    parse_bytes,
    parse_seconds,
    written,
)
from phalanx.core.model.resources import Cores
from phalanx.errors import BadRequest, Unprocessable

SHOWN_MAX = 80

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
    millis = millicores(value)
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
    """Refuse what may not name a job or a queue."""
    if not is_name(value):
        raise BadRequest(
            f"{field}: {shown(value)} is not a name: write 1 to 63 lower-case letters, digits, '.', '_' or"
            " '-', with a letter or digit at both ends"
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


def read_selector(text: str) -> Selector:
    try:
        return parse_selector(text)
    except ValueError as error:
        raise BadRequest(f"selector: {error}") from None


def check_count(field: str, count: int, most: int) -> None:
    """Refuse a list with too many members."""
    if count > most:
        raise BadRequest(f"{field}: {count} are too many, at most {most} are allowed")


def read_size(field: str, value: int | str) -> int:
    """Bytes, from a number or from text such as 16GiB."""
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except ValueError as error:
            raise BadRequest(f"{field}: {error}") from None
    check_number(field, value, 0, BYTES_MAX)
    return value


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


def shown(value: object) -> str:
    """A value as an error may show it: short, and free of what a terminal would obey."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"  # Python refuses to spell very long ones
    text = repr(value[: SHOWN_MAX + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def read_command(
    command: list[str], shell: str | None, env: dict[str, str], cwd: str | None, field: str = ""
) -> Command:
    """The command of a group; `field` is put before each name, as in `groups[0].`."""
    if command and shell is not None:
        raise BadRequest(f"{field}command and {field}shell: give one of them, not both")
    if cwd is not None:
        check_cwd(cwd, f"{field}cwd")
    check_env(env, f"{field}env")
    # The user's string is one argument of the shell, so nothing of ours is ever read as shell words.
    argv = tuple(command) if shell is None else ("/bin/sh", "-c", shell)
    check_argv(argv, f"{field}command" if shell is None else f"{field}shell")
    return Command(argv, env, cwd)


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
        if not name or "=" in name:
            raise BadRequest(
                f"{field}: {shown(name)} is not a variable name: it must not be empty or hold '='"
            )
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
