"""Which job is shown, where a name means several jobs of a user: it is said on standard error."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from phalanx.cli.output import clean, note
from phalanx.core.model.job import LAST, is_job_id, reads_as_number
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.client.client import Client

TOLD_MAX = 5


def shown_id(client: Client, name: str, *, retries: int = 0) -> str:
    """The id of a Kubernetes name such as default/pod-1, else the name; say which job it is if several are so called.

    `retries` of them are shown together with it.
    """
    if "/" in name:
        return client.named(name).id
    if not (reads_as_number(name) or is_job_id(name.partition(".")[0]) or name == LAST or ":" in name):
        with suppress(PhalanxError):  # that there is none is said by the request itself
            found = client.named(name)
            if len(found.namesakes) > 1 + retries:
                note(told(clean(name), found.number, found.namesakes))
    return name


def told(name: str, number: int, all_of_them: list[int]) -> str:
    """The sentence."""
    some = ", ".join(map(str, all_of_them[-TOLD_MAX:]))
    which = "the newest of" if number == all_of_them[-1] else "the one that has not ended of"
    more = "…, " if len(all_of_them) > TOLD_MAX else ""
    return f"{name}: job {number}, {which} {len(all_of_them)} with this name ({more}{some})"
