"""Two invented devices behind the real binding of NVML: a small library in C, compiled once for a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class NvmlStub:
    """The library in a folder, and what its devices say."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "devices"
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
        self.environment = {"LD_LIBRARY_PATH": str(folder), "NVML_STUB_FILE": str(self._file)}
        self.says((0, 0), (0, 0))

    def says(self, *devices: tuple[int, int], pid: int = 0, own_bytes: int = 0) -> None:
        """Utilisation in percent and bytes in use, of each device from now on; on the last one a process has some."""
        draft = self._file.with_suffix(".new")
        lines = [f"{percent} {used} 0 0" for percent, used in devices]
        lines[-1] = lines[-1].removesuffix("0 0") + f"{pid} {own_bytes}"
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self._file)

    def fails(self, *devices: tuple[bool, int, int, int]) -> None:
        """Of each device from now on: whether it is lost, its ECC errors, its last Xid and how many it had."""
        draft = self._file.with_suffix(".draft")
        draft.write_text("".join(f"{lost:d} {ecc} {xid} {number}\n" for lost, ecc, xid, number in devices))
        draft.replace(self._file.with_suffix(".health"))
