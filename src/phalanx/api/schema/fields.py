"""Single fields of a submission: is this text, number, size or duration one we can take?

Each check names the field, shows the value and says what would be right. A wrong word is BadRequest, a number
out of its range is Unprocessable. What the fields mean together is `api/schema/submission.py`'s business.
"""

from __future__ import annotations

from phalanx.core.model.ids import is_name, is_object
from phalanx.core.model.quantity import BYTES_MAX, SECONDS_MAX, parse_bytes, parse_seconds
from phalanx.core.model.tags import TAGS_MAX, Selector, is_tag, parse_selector
from phalanx.errors import BadRequest, Unprocessable

SHOWN_MAX = 80


def check_number(field: str, value: float, least: float, most: float) -> None:
    """Refuse a number outside `least` to `most`; NaN is outside of everything."""
    if not least <= value <= most:
        raise Unprocessable(
            f"{field}: {shown(value)} is out of range, give {least} to {most}", reason="OutOfRange"
        )


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
