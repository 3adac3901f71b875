"""Decoders of JSON, one for each form, made by one thread at a time.

msgspec looks at a Struct's fields when its first decoder is made. Two threads that do so at once may crash the process,
and a client may be used by many threads.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import msgspec

_making = threading.Lock()


def decoder(form: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a form."""
    with _making:
        return _made(form)


@cache
def _made(form: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(form)
