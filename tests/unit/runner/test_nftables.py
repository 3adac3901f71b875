"""nft by its library and by its program: the same commands, the same refusals."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading

import pytest

from phalanx.runner.nftables import LIBRARY, SYSTEM_PATH, Nft

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft", path=SYSTEM_PATH) is None, reason="rules take root and nftables"
)


def in_a_namespace(library: str, *commands: str) -> list[str]:
    """What each of these commands says, in a network namespace that ends with its thread."""
    said: list[str] = []

    def run() -> None:
        _leave_network()
        nft = Nft(library)
        said.extend(nft.run(command) for command in commands)
        said.append(str(nft.can_match_cgroups()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said


def _leave_network() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")


@pytest.mark.parametrize("library", [LIBRARY, "libmissing.so.0"])
def test_commands_are_carried_out_all_or_none(library: str):
    made, failed, added, gone, _ = in_a_namespace(
        library,
        "table inet phxtest {\nset s { type ipv4_addr; }\n}",
        "table inet phxother {}\nadd element inet phxtest s { nonsense }",
        "add element inet phxtest s { 10.0.0.1 }",
        "delete table inet phxother",
    )
    assert (made, added) == ("", "")
    assert failed
    assert "No such file" in gone, "nothing of what failed was done"


def test_this_kernel_tells_cgroups_apart():
    assert in_a_namespace(LIBRARY) == ["True"]
