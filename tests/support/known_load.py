"""Programs that use a known amount of processor time, memory and I/O, to compare measurements with."""

from __future__ import annotations

import sys


def waiting(until: str) -> str:
    """It says that it has used what it should, and waits for a file, or for its standard input to end."""
    text = f"while not os.path.exists({until!r}): time.sleep(0.02)" if until else "sys.stdin.read()"
    return f"import os, sys, time\nprint('used', flush=True)\n{text}\n"


def cpu(seconds: float, children: int = 0, until: str = "") -> list[str]:
    """Uses so much processor time itself, and as much in each of so many children, one after another."""
    text = f"""
import os, sys, time
def burn():
    while time.process_time() < {seconds}:
        pass
for _ in range({children}):
    pid = os.fork()
    if not pid:
        begun = time.process_time()
        while time.process_time() - begun < {seconds}:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
burn()
{waiting(until)}
"""
    return [sys.executable, "-c", text]


def memory(mebibytes: int, children: int = 0, until: str = "") -> list[str]:
    """Holds so much memory, and as much in each of so many children at the same time."""
    text = f"""
import os, sys, time
parent = os.getpid()
for _ in range({children}):
    read, write = os.pipe()
    if not os.fork():
        held = bytearray(os.urandom(1 << 20)) * {mebibytes}
        os.write(write, b".")
        while os.getppid() == parent:
            time.sleep(0.02)
        os._exit(0)
    os.read(read, 1)
held = bytearray(os.urandom(1 << 20)) * {mebibytes}
{waiting(until)}
"""
    return [sys.executable, "-c", text]


def io(path: str, mebibytes: int, until: str = "") -> list[str]:
    """Writes so much to a file and to the disk, drops it from the cache, and reads it."""
    text = f"""
import os, sys
block = os.urandom(1 << 20)
fd = os.open({path!r}, os.O_RDWR | os.O_CREAT)
for _ in range({mebibytes}):
    os.write(fd, block)
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
os.lseek(fd, 0, os.SEEK_SET)
while os.read(fd, 1 << 20):
    pass
{waiting(until)}
"""
    return [sys.executable, "-c", text]
