"""The program by which v2 refuses to open device nodes: made as bytes, loaded and attached to a cgroup by bpf(2).

v1 has files for this (`devices.deny`); on v2 the kernel asks a program of type CGROUP_DEVICE for each open and mknod.
Ours compares the numbers of the device with a list: those are refused, all others allowed. It is attached so that
programs of cgroups above it are asked, too. A program lives as long as its cgroup; nothing has to be removed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

NODES_MAX = 4096  # the kernel takes programs of up to a million instructions, old ones 4096
_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH = 5, 8, 9
_CGROUP_DEVICE_PROGRAM = 15
_CGROUP_DEVICE_ATTACH = 6
_ALLOW_MULTI = 2
_ATTRIBUTE_BYTES = 128
_LOAD_WORD, _MOVE, _EXIT, _JUMP_IF_NOT = 0x61, 0xB7, 0x95, 0x55
_TYPE_AT, _MAJOR_AT, _MINOR_AT = 0, 4, 8  # in struct bpf_cgroup_dev_ctx
_BLOCK, _CHARACTER = 1, 2
_AND = 0x57


class DeviceNode(Struct, frozen=True, order=True):
    """A device node by its numbers, as the kernel knows it, whatever paths lead to it."""

    major: int
    minor: int
    is_block: bool = False


def program(denied: Iterable[DeviceNode]) -> bytes:
    """The instructions: 0 (refused) for each of these nodes, 1 (allowed) for all others."""
    code = _load(2, _TYPE_AT) + _instruction(_AND, 2, 0, 0xFFFF) + _load(3, _MAJOR_AT) + _load(4, _MINOR_AT)
    for node in sorted(set(denied)):
        kind = _BLOCK if node.is_block else _CHARACTER
        code += _unless(2, kind, 4) + _unless(3, node.major, 3) + _unless(4, node.minor, 2) + _answer(0)
    return code + _answer(1)


class DeviceFilter:
    """Loads programs once for each list of nodes, and attaches them to cgroups of v2. Raises OSError."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[DeviceNode, ...], int] = {}

    def attach(
        self, folder: Path, denied: tuple[DeviceNode, ...], instead_of: tuple[DeviceNode, ...] = ()
    ) -> None:
        """Refuse these nodes to all processes of a cgroup, and no longer those that were refused there before."""
        cgroup = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if denied:
                _attach(_PROG_ATTACH, cgroup, self._program(denied), _ALLOW_MULTI)
            if instead_of:
                _attach(_PROG_DETACH, cgroup, self._program(instead_of), 0)
        finally:
            os.close(cgroup)

    def close(self) -> None:
        for fd in self._loaded.values():
            os.close(fd)
        self._loaded.clear()

    def _program(self, denied: tuple[DeviceNode, ...]) -> int:
        if denied not in self._loaded:
            self._loaded[denied] = _load_program(program(denied))
        return self._loaded[denied]


def _instruction(code: int, register: int, offset: int = 0, number: int = 0, source: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | register, offset, number)


def _load(register: int, at: int) -> bytes:
    return _instruction(_LOAD_WORD, register, at, source=1)


def _unless(register: int, number: int, skipped: int) -> bytes:
    return _instruction(_JUMP_IF_NOT, register, skipped, number)


def _answer(number: int) -> bytes:
    return _instruction(_MOVE, 0, 0, number) + _instruction(_EXIT, 0)


def _load_program(code: bytes) -> int:
    if len(code) > 8 * (6 + 5 * NODES_MAX):
        raise OSError(7, f"a device filter has at most {NODES_MAX} nodes")
    instructions, terms = (
        ctypes.create_string_buffer(code, len(code)),
        ctypes.create_string_buffer(b"Apache-2.0"),
    )
    attributes = struct.pack(
        "<IIQQ",
        _CGROUP_DEVICE_PROGRAM,
        len(code) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(terms),
    )
    return _bpf(_PROG_LOAD, attributes)


def _attach(command: int, cgroup: int, loaded: int, flags: int) -> None:
    _bpf(command, struct.pack("<IIII", cgroup, loaded, _CGROUP_DEVICE_ATTACH, flags))


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(38, f"the number of bpf(2) on {platform.machine()} is not known here")
    text = attributes.ljust(_ATTRIBUTE_BYTES, b"\0")
    buffer = ctypes.create_string_buffer(text, len(text))
    answer: int = ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, len(text))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf(2): {os.strerror(error)}")
    return answer
