"""A wall clock that can be set for one node alone: a small library, compiled here, shifts it by what a file says.

It is loaded before everything else into the node's runner and keeper (LD_PRELOAD). The file is mapped, so that a
step is seen at once by all of them. Clocks that count from boot are left as they are, as on a machine.
"""

from __future__ import annotations

import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path

_VARIABLE = "WALL_CLOCK_FILE"
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
static int (*real)(clockid_t, struct timespec *);
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK_FILE");
    real = dlsym(RTLD_NEXT, "clock_gettime");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
    close(file);
}
int clock_gettime(clockid_t id, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, now);
    if (!code && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return code;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int code = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return code;
}
"""


def has_compiler() -> bool:
    return shutil.which("gcc") is not None


def build(folder: Path) -> Path:
    """The library, which serves any number of clocks."""
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "wallclock.c", folder / "wallclock.so"
    source.write_text(_SOURCE)
    words = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(words, check=True)
    return library


class WallClock:
    """The wall clock of one node."""

    def __init__(self, folder: Path, library: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "wall-clock"
        self._file.write_bytes(bytes(struct.calcsize("l")))
        self.environment = {"LD_PRELOAD": str(library), _VARIABLE: str(self._file)}
        # The keeper is started without the runner's environment: its interpreter has to bring it along.
        self._python = folder / "python"
        given = " ".join(f"{name}={value}" for name, value in self.environment.items())
        self._python.write_text(f'#!/bin/sh\n{given} exec {sys.executable} "$@"\n')
        self._python.chmod(self._python.stat().st_mode | stat.S_IXUSR)

    @property
    def prelude(self) -> str:
        """What a runner does first, so that its keeper has this clock, too."""
        return f"import sys; sys.executable = {str(self._python)!r}; "

    def set_by(self, seconds: int) -> None:
        """From now on it is so much ahead of the machine's; behind it, if negative."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("l", seconds))
