"""What open pages of the dashboard cost the coordinator: its CPU with none and with twenty, in turns, in one run.

    .venv/bin/python -m bench.ui_pages [--nodes 1000] [--pages 20] [--seconds 12] [--rounds 3]

Beside the cluster of `bench/ui_load.py` Chromium opens each kind of page once, and what it asks is recorded. Then so
many pages, of each kind as many, ask the very same at the same times (`bench/ui_clients.py`), each from another moment
on. Times are CPU time of the coordinator's process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from bench.cluster import Cluster
from bench.ui_load import CHROMIUM, ROOT, at_work, logged_in, options_of, revision
from bench.ui_recording import USEFUL, Asked, Recording, record, tell
from docs.site.look import QUIET

RECORDED_S = 8.0
OPENING_S = 3.0
GOLDEN = 0.618


class Pages:
    """So many open pages, in a process of their own."""

    def __init__(self, port: int, recordings: list[Recording], many: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.ui_clients"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True,
        )  # fmt: skip
        pages = []
        for number in range(many):
            recording = recordings[number % len(recordings)]
            begins_at_s = number * GOLDEN % 1 * recording.seconds  # they were not opened at one moment
            pages.append({"recording": recording._asdict(), "begins_at_s": begins_at_s})
        self._write({"port": port, "pages": pages})

    def counted(self) -> dict[str, Any]:
        self._write({})
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _write(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()


def cpu_s(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def recorded(cluster: Cluster) -> list[Recording]:
    """What each kind of page asks."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        context = logged_in(browser, cluster)
        print("| page | asks in Chromium |\n|---|---|")
        found = [record(context, cluster.port, path, RECORDED_S) for path in USEFUL]
        browser.close()
    headers = next(each.headers for each in found if each.headers)  # the map asks nothing after its stream
    for each in found:
        tell(each)
    return [each._replace(headers=headers) for each in found]


def tell_answers(cluster: Cluster, recordings: list[Recording]) -> None:
    """How large the answers are, and how long each takes if it is not shared."""
    rest = cluster.connect()
    print("\n| answer | size | compressed | takes (median of 5) |\n|---|--:|--:|--:|")
    paths = {"/v1/pages/map": None} | {each.path: None for seen in recordings for each in seen.asked}
    for path in paths:
        times_ms, answer = [], b""
        for _ in range(5):
            began = time.perf_counter()
            answer = rest.ask("GET", path)
            times_ms.append(1000 * (time.perf_counter() - began))
            time.sleep(0.5)
        kb = len(answer) / 1000, len(gzip.compress(answer, 1)) / 1000
        print(
            f"| {path[:70]} | {kb[0]:.0f} kB | {kb[1]:.0f} kB | {statistics.median(times_ms):.0f} ms |",
            flush=True,
        )
    print()


def measure(cluster: Cluster, recordings: list[Recording], pages: int, seconds: float) -> tuple[float, str]:
    """The share of a core, and in words what happened meanwhile."""
    rest = cluster.connect()
    opened = Pages(cluster.port, recordings, pages) if pages else None
    time.sleep(OPENING_S)
    before = opened.counted() if opened else {}
    changes, used, began = revision(rest), cpu_s(cluster.coordinator_pid), time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began
    share = (cpu_s(cluster.coordinator_pid) - used) / took_s
    said = f"{(revision(rest) - changes) / took_s:4.0f} changes/s"
    if opened:
        said += _words(before, opened.counted(), pages, took_s)
        opened.close()
    return share, said


def _words(before: dict[str, Any], after: dict[str, Any], pages: int, took_s: float) -> str:
    answers = {
        status: number - before["answers"].get(status, 0) for status, number in after["answers"].items()
    }
    each = pages * took_s
    many = sum(answers.values())
    kb = {name: (after[name] - before[name]) / 1000 / each for name in ("stream_bytes", "answer_bytes")}
    waited_ms = 1000 * (after["waited_s"] - before["waited_s"]) / max(1, many)
    return (
        f"; each page {(after['messages'] - before['messages']) / each:.1f} messages ({kb['stream_bytes']:.1f} kB)"
        f" and {many / each:.2f} answers ({kb['answer_bytes']:.1f} kB) a second, after {waited_ms:.0f} ms"
        f" (longest {1000 * after['longest_s']:.0f} ms); by status {answers}"
    )


def report(cluster: Cluster, options: argparse.Namespace) -> None:
    seen = recorded(cluster)
    tell_answers(cluster, seen)
    bare = [Recording("", RECORDED_S, list[Asked](), seen[0].headers)]
    kinds = [("no page", 0, bare), (f"{options.pages} bare streams", options.pages, bare)]
    kinds += [(f"{options.pages} pages", options.pages, seen)]
    if options.each:
        kinds += [(f"{options.pages} × {each.page}", options.pages, [each]) for each in seen]
    shares: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, pages, recordings in kinds:
            share, said = measure(cluster, recordings, pages, options.seconds)
            shares.setdefault(name, []).append(share)
            print(f"{name:16} {100 * share:5.1f} % of a core; {said}", flush=True)
    base = statistics.median(shares["no page"])
    print("\n| | share of a core | against none |\n|---|--:|--:|")
    for name, found in shares.items():
        middle = statistics.median(found)
        print(f"| {name} | {100 * middle:.1f} % | {100 * (middle - base):+.1f} |")


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", action="store_true", help="also so many pages of each kind alone")
    options = parser.parse_args()
    with at_work(options.nodes, options.jobs) as cluster:
        report(cluster, options)


if __name__ == "__main__":
    main()
