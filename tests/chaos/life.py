"""A task of the rig. It takes what it was granted, records its own life, and ends as its arguments say.

It runs as `python -I -S life.py LIVES LOCKS SECONDS CODE…` and knows nothing of Phalanx but the variables of its
environment. Every device and every core of a node is a file here, and so is every task: a locked file means that
another process holds it at the same moment. The kernel releases a lock when its holder dies, however it died.
"""

import fcntl
import os
import select
import signal
import sys
import time

BEAT_S = 0.5


class Life:
    """One attempt, as it sees itself."""

    def __init__(self, lives: str, locks: str) -> None:
        env = os.environ
        self._lives = os.open(lives, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._locks = locks
        self._kept: list[int] = []
        self.key = env["PHALANX_ATTEMPT_KEY"].rpartition("/")[0]  # without the lane
        self.node = env["PHALANX_NODE"]
        self.devices = env["PHALANX_DEVICES"]
        self.cores = env["PHALANX_CORES"]
        self.formation = env["PET_RDZV_ID"] if int(env["PHALANX_WORLD_SIZE"]) > 1 else ""
        self.epoch = env["PHALANX_EPOCH"]

    def tell(self, what: str, detail: object = "") -> None:
        """One line, in one write, at the end of the file: lines of many writers never mix."""
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        words = (what, f"{at:.4f}", self.key, self.node, self.devices, self.cores, self.formation, self.epoch)
        os.write(self._lives, "\t".join((*words, str(detail))).encode() + b"\n")

    def take(self, cores_of_node: int) -> None:
        """Lock the task, the devices and as many cores as were granted; record whatever is taken already."""
        task = self.key.rpartition("/")[0].replace("/", ".")
        if (holder := self._locked(f"task-{task}")) is not None:
            self.tell("twin", holder)
        for device in filter(None, self.devices.split(",")):
            if (holder := self._locked(f"{self.node}-device-{device}")) is not None:
                self.tell("clash", f"device {device} is held by {holder}")
        missing = int(self.cores)
        for core in range(cores_of_node):
            if missing and self._locked(f"{self.node}-core-{core}") is None:
                missing -= 1
        if missing:
            self.tell("clash", f"{missing} of {self.cores} cores are held by others")

    def _locked(self, name: str) -> str | None:
        """None if it is ours now, else the holder."""
        file = os.open(f"{self._locks}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 200).decode().strip() or "somebody"
            os.close(file)
            return holder
        os.ftruncate(file, 0)
        os.pwrite(file, self.key.encode(), 0)
        self._kept.append(file)
        return None


def born() -> float:
    """When this process was made, in seconds since boot: its time limit counts from there."""
    file = os.open("/proc/self/stat", os.O_RDONLY)
    words = os.read(file, 4096).rpartition(b")")[2].split()
    os.close(file)
    return int(words[19]) / os.sysconf("SC_CLK_TCK")


def main(lives: str, locks: str, cores_of_node: str, seconds: str, *codes: str) -> int:
    life = Life(lives, locks)

    def stopped(number: int, frame: object) -> None:
        life.tell("stopped", number)
        os._exit(128 + number)

    life.tell("start", f"{os.getpid()} {born():.2f}")
    signal.signal(signal.SIGTERM, stopped)  # only now: its line comes after that of the start
    life.take(int(cores_of_node))
    ends_at = time.clock_gettime(time.CLOCK_BOOTTIME) + float(seconds)
    while (left_s := ends_at - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
        select.select([], [], [], min(left_s, BEAT_S))
        if left_s > BEAT_S:
            life.tell("alive")
    position = int(life.key.split("/")[1])
    code = int(codes[position % len(codes)])
    life.tell("end", code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
