"""`import phalanx` is cheap, and a name is loaded when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import phalanx


def modules_after(code: str) -> set[str]:
    code += "; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_loads_no_library():
    assert not {"msgspec", "numpy", "httpx", "asyncio"} & modules_after("import phalanx")


def test_the_sync_client_needs_no_library_for_http():
    loaded = modules_after("from phalanx import Client")
    assert "phalanx.client.client" in loaded
    assert not {"httpx", "asyncio", "numpy", "uvicorn", "structlog"} & loaded


def test_the_names_are_there():
    assert phalanx.AsyncClient.__name__ == "AsyncClient"
    assert phalanx.__version__
    assert set(dir(phalanx)) >= {"AsyncClient", "Client", "__version__", "local"}


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="'Clint'"):
        phalanx.Clint  # noqa: B018
