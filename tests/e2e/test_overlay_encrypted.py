"""The overlay network encrypted between two hosts: by wireguard-go where the kernel has no WireGuard of its own."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from phalanx.runner import wireguard
from tests.e2e.test_overlay import ON, done, listening, reach, say
from tests.support.network_hosts import HostCluster, a_host_cluster, host_links
from tests.support.waiting import wait_until

__all__ = ["listening"]  # a fixture
pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0
        or shutil.which("nft", path="/usr/sbin:/usr/bin") is None
        or bool(wireguard.why_not()),
        reason=f"an encrypted overlay network takes root, nftables and WireGuard: {wireguard.why_not()}",
    ),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    folder = tmp_path_factory.mktemp("encrypted")
    with a_host_cluster(folder, 2, {**ON, "overlay.encryption": "wireguard"}) as started:
        yield started
    assert programs() == before, "the programs of links end with them"


def programs() -> set[int]:
    """Processes of wireguard-go that are not another cluster's."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"wireguard-go" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


before = programs()


def reached(cluster: HostCluster, address: str) -> str:
    id = cluster.client.submit(
        command=reach(address, tries=5), targets=["n2"], network="overlay", cores=0.1, max_retries=0
    ).task_ids[0]
    return done(cluster, id)


def test_what_tasks_say_is_not_on_the_wire(cluster: HostCluster, listening: str) -> None:
    heard = say(cluster, listening, b"only between us")
    assert b"only between us" not in heard
    assert wireguard.PORT.to_bytes(2, "big") in heard, "it passed there"


def test_a_new_key_of_a_node_reaches_the_others_and_none_is_open_to_others(
    cluster: HostCluster, listening: str
) -> None:
    path = cluster.folder / "n2" / wireguard.KEY_FILE
    former = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({former, (cluster.folder / "n1" / wireguard.KEY_FILE).read_text()}) == 2
    cluster.kill("n2")
    path.unlink()
    cluster.start_runner("n2")
    wait_until(lambda: path.exists() and path.read_text() not in ("", former), 30.0, "it has a new key")
    assert reached(cluster, listening) == "reached\n"


def test_the_link_is_made_anew_if_its_program_is_killed(cluster: HostCluster, listening: str) -> None:
    (link,) = wait_until(
        lambda: [name for name in host_links(2) if name.endswith("v")],
        10.0,
        "it is made again with its new key",
    )
    for pid in programs() - before:
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == link.encode():
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: link not in host_links(2), 10.0, "the link is gone with its program")
    assert reached(cluster, listening) == "reached\n"
