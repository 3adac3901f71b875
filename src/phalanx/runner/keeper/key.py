"""What the key of an attempt looks like. Journals, environments and sockets may say anything, so it is looked at."""

from __future__ import annotations

import re

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[0-9]{1,18}){2,3}")


def is_key(text: object) -> bool:
    """Whether it can be a key: job, position and number, perhaps a lane, with slashes between."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None
