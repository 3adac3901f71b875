"""A node whose wall clock is set by hours: time limits stay what they are, also across a restart of its runner (R27).

A small library, compiled here, shifts the wall clock of the runner and of its keeper by as much as a file says.
"""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.api.schema import TaskView
from tests.e2e.cluster import RealCluster, eventually

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
static long offset(void) {
    long seconds = 0;
    FILE *file = fopen(OFFSET_FILE, "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, now);
    if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
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


class Clock:
    """The wall clock of one node."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.set_by(0)
        library, source, self.python = folder / "shim.so", folder / "shim.c", folder / "python"
        source.write_text(SHIM)
        build = [
            "gcc",
            "-shared",
            "-fPIC",
            "-O1",
            f'-DOFFSET_FILE="{self._file}"',
            "-o",
            str(library),
            str(source),
            "-ldl",
        ]
        subprocess.run(build, check=True)
        self.environment = {"LD_PRELOAD": str(library)}
        # The keeper is started without the runner's environment.
        self.python.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {sys.executable} "$@"\n')
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)

    def set_by(self, seconds: int) -> None:
        draft = self._file.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


def submitted(cluster: RealCluster, seconds: float, limit_s: float) -> str:
    command = ["sleep", str(seconds)]
    return cluster.client.submit(command=command, time_limit=limit_s, max_retries=0).task_ids[0]


def ended(cluster: RealCluster, id: str) -> TaskView:
    return cluster.wait_task(id, "Completed", "Failed", within_s=12.0)


def test_time_limits_hold_while_a_nodes_clock_is_set_by_hours(tmp_path: Path, clock: Clock) -> None:
    cluster = RealCluster(tmp_path / "c", lost_after_s=20.0)
    try:
        cluster.start({})
        cluster.environment = clock.environment
        cluster.prelude = f"import sys; sys.executable = {str(clock.python)!r}; "
        cluster.start_runner("n1", "cpus=4,ram=4GiB")
        cluster.wait_online("n1")

        clock.set_by(-3600)
        early = submitted(cluster, 0.5, 20)
        assert ended(cluster, early).status == "Completed", "it did not run longer than its limit"
        shown = cluster.client.task(early).started_at
        assert shown is not None and shown < cluster.client.job(early).submitted_at - 3000, "the shim works"

        clock.set_by(3600)
        late = submitted(cluster, 300, 1)
        assert (ended(cluster, late).status, cluster.client.task(late).reason) == ("Failed", "timeout")

        kept = submitted(cluster, 4, 60)
        cluster.wait_task(kept, "Running")
        clock.set_by(2 * 3600)
        cluster.kill("n1")
        cluster.start_runner("n1")
        eventually(lambda: "n1" in {node.name for node in cluster.client.nodes()}, 10.0)
        assert (ended(cluster, kept).status, cluster.client.task(kept).attempt) == ("Completed", 1)
    finally:
        cluster.stop()
