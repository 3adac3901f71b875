"""Decoders of JSON, one for each form, made by one thread at a time.

msgspec looks at a Struct's fields when its first decoder is made. Two threads that do so at once may crash the process,
and a client may be used by many threads.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

_making = threading.Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(form: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a form."""
    found = _made.get(form)
    if found is None:
        with _making:
            found = _made.setdefault(form, msgspec.json.Decoder(form))
    return found
