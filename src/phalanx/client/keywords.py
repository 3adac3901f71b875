"""Keyword arguments that a function does not have: one TypeError for all of them, with the name that each may mean.

Functions that take their fields as `**fields` check them here, before anything is sent. What a value has to be is left
to the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from phalanx.api.schema.nearest import nearest


def check_keywords(
    function: str,
    given: Iterable[str],
    known: Collection[str],
    *,
    hints: Mapping[str, str] | None = None,
    listed_by: str = "",
) -> None:
    """Refuse names that are not known. `hints` say what to do about some; `listed_by` names what lists all of them."""
    wrong = {name: _meant(name, known, hints or {}) for name in given if name not in known}
    if wrong:
        told = "; ".join(f"no argument {name!r}{meant}" for name, meant in wrong.items())
        listed = listed_by or f"it has {', '.join(known)}"
        raise TypeError(f"{function}() has {told}{'' if all(wrong.values()) else f' ({listed})'}")


def _meant(name: str, known: Collection[str], hints: Mapping[str, str]) -> str:
    if name in hints:
        return f": {hints[name]}"
    near = nearest(name, known)
    return f", did you mean {near!r}?" if near else ""
