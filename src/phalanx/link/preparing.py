"""What a runner says of the images that it gets ready: whose, and how far that is."""

from __future__ import annotations

from phalanx.core.model.orders import AttemptKey


def wrong_preparing(told: list[tuple[AttemptKey, str]], count_max: int, text_max: int) -> str:
    """What cannot be true of it; empty: nothing."""
    if len(told) > count_max:
        return f"preparing: {len(told)} are listed, expected at most {count_max}"
    long = next((text for _, text in told if len(text) > text_max), None)
    return "" if long is None else f"preparing = {long[:80]!r}: expected at most {text_max} characters"
