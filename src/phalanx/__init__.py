"""Phalanx: a scheduler for AI work.

    from phalanx import Client
    with Client() as cluster:
        job = cluster.submit(command=["python", "train.py"], gpus=2)

Names are imported when they are first used, so that `import phalanx` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.client.async_client import AsyncClient
    from phalanx.client.client import Client
    from phalanx.embedded import local

    __version__: str

__all__ = ["AsyncClient", "Client", "__version__", "local"]

_HOMES = {
    "AsyncClient": "phalanx.client.async_client",
    "Client": "phalanx.client.client",
    "local": "phalanx.embedded",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        found: Any = _version()
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("phalanx")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0.0.0"
