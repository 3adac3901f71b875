"""The device filter: its bytes, and on a machine that allows it, its effect."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from phalanx.runner.device_filter import NODES_MAX, DeviceFilter, DeviceNode, program

FULL = DeviceNode(1, 7)  # /dev/full
V2 = next((path for path in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"))
           if (path / "cgroup.controllers").exists()), None)  # fmt: skip


def test_the_program_refuses_what_is_listed_and_allows_the_rest():
    allow = "b7000000010000009500000000000000"
    begin = "611200000000000057020000ffff000061130400000000006114080000000000"
    assert program([]).hex() == begin + allow
    one = "550204000200000055030300c30000005504020001000000b7000000000000009500000000000000"
    assert program([DeviceNode(195, 1)]).hex() == begin + one + allow


def test_a_block_device_is_told_apart_from_a_character_device():
    assert program([DeviceNode(8, 0, is_block=True)])[4 * 8 :][:8].hex() == "5502040001000000"


def test_the_order_and_repetition_of_nodes_change_nothing():
    nodes = [DeviceNode(195, 1), DeviceNode(195, 0)]
    assert program(nodes) == program([*reversed(nodes), nodes[0]])


@pytest.fixture
def cgroup():
    if os.getuid() or V2 is None:
        pytest.skip("needs root and cgroup v2")
    folder = V2 / f"phalanx-test-filter-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def opened(cgroup: Path, path: str) -> bool:
    script = f"echo $$ > {cgroup}/cgroup.procs && : < {path}"
    return subprocess.run(["sh", "-c", script], check=False, stderr=subprocess.DEVNULL).returncode == 0


def test_a_refused_node_cannot_be_opened_by_any_path_until_it_is_allowed_again(cgroup: Path, tmp_path: Path):
    closing = DeviceFilter()
    node = tmp_path / "other-name"
    os.mknod(node, 0o20666, os.makedev(1, 7))
    try:
        closing.attach(cgroup, (FULL,))
    except OSError as error:
        pytest.skip(f"the kernel takes no device filter: {error}")
    assert not opened(cgroup, "/dev/full")
    assert not opened(cgroup, str(node))
    assert opened(cgroup, "/dev/zero")
    zero = DeviceNode(1, 5)
    closing.attach(cgroup, (zero,), instead_of=(FULL,))
    assert opened(cgroup, "/dev/full")
    assert not opened(cgroup, "/dev/zero")
    closing.attach(cgroup, (), instead_of=(zero,))
    assert opened(cgroup, "/dev/zero")
    closing.close()


def test_a_list_without_end_is_refused_before_the_kernel_sees_it(tmp_path: Path):
    nodes = tuple(DeviceNode(195, minor) for minor in range(NODES_MAX + 10))
    with pytest.raises(OSError, match="at most"):
        DeviceFilter().attach(tmp_path, nodes)
