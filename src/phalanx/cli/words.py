"""Options that take several words: repeated, or with commas."""

from __future__ import annotations


def listed(given: list[str] | None) -> list[str]:
    """The words of such an option, in order."""
    return [word.strip() for text in given or [] for word in text.split(",") if word.strip()]
