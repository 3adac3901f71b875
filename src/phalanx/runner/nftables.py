"""nft without a process for each change: its library, loaded once; the program where there is no library.

A change of rules by the program takes 20 ms on a busy machine, most of it to start; by the library less than one. The
library belongs to the same package. It is used in the network namespace of the thread that made the `Nft`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LIBRARY = "libnftables.so.1"
ERROR_MAX = 300
_PROGRAM_S = 10.0


class Nft:
    """Carries out commands of nft; those of one call all or none. It blocks, and belongs to one thread."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = _load(library)
        self._context = None if self._library is None else _context(self._library)

    def run(self, text: str) -> str:
        """Carry out these commands; why that cannot be done, or nothing."""
        if self._library is None or self._context is None:
            return _by_program(text)
        failed = self._library.nft_run_cmd_from_buffer(self._context, text.encode())
        said = self._library.nft_ctx_get_error_buffer(self._context) or b""
        return (said.decode(errors="replace").strip()[:ERROR_MAX] or "refused") if failed else ""

    def can_match_cgroups(self) -> bool:
        """Whether the kernel tells sockets apart by their cgroups of v2; nothing is left of the trial."""
        table = f"table inet phalanx_try_{os.getpid()}"
        rules = "map tried { type cgroupsv2 : mark; }\nchain try {\nmeta mark set socket cgroupv2 level 1 map @tried\n}"
        return not self.run(f"{table} {{\n{rules}\n}}\ndelete {table}\n")


def _load(name: str) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(name)
        library.nft_ctx_new.restype = ctypes.c_void_p
        library.nft_ctx_buffer_error.argtypes = [ctypes.c_void_p]
        library.nft_ctx_get_error_buffer.argtypes = [ctypes.c_void_p]
        library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
        library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    except (OSError, AttributeError):
        return None
    return library


def _context(library: ctypes.CDLL) -> int | None:
    made: int | None = library.nft_ctx_new(0)
    if made is not None and library.nft_ctx_buffer_error(made):
        return None
    return made


def _by_program(text: str) -> str:
    program = shutil.which("nft", path=SYSTEM_PATH)
    if program is None:
        return "there is no program nft"
    try:
        done = subprocess.run(
            [program, "-f", "-"],
            input=text,
            text=True,
            capture_output=True,
            timeout=_PROGRAM_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)[:ERROR_MAX]
    return done.stderr.strip()[:ERROR_MAX] or "refused" if done.returncode else ""
