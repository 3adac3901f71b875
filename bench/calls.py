"""Cell 9: `Executor.map` of ten thousand small functions, against Ray and Dask on as many warm worker processes.

Each round runs us and the others one after another; ratios are taken within the round. Ours is a real cluster with
durable state, whose calls go through the coordinator; theirs keep everything in memory.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.figures import Chapter, Figure
from bench.machine import family
from bench.partner import Partner
from bench.rivals import RAY
from bench.session import Session

CALLS, ROUNDS, WORKERS = 10_000, 5, 2
DASK = "distributed==2026.8.0"
_DRIVER = str(Path(__file__).parent / "call_peer.py")


def measure(session: Session) -> Chapter:
    calls = session.size(CALLS, 1000)
    cluster = session.cluster(WORKERS)
    address = f"http://127.0.0.1:{cluster.port}"
    token = (cluster.folder / "credentials").read_text().strip()
    drivers = {"ours": _driver(session, sys.executable, "phalanx", address, token)}
    if session.with_ray:
        python = _peers(session.place("call-peers"))
        drivers |= {"Ray": _driver(session, python, "ray"), "Dask": _driver(session, python, "dask")}
    rounds: list[dict[str, float]] = []
    for _ in range(session.size(ROUNDS, 2)):
        session.settle()
        rounds.append(
            {name: calls / float(each.ask({"calls": calls})["seconds"]) for name, each in drivers.items()}
        )
    for each in drivers.values():
        each.stop()
    chapter = Chapter(
        f"Small Python functions: Executor.map of {calls:,}, {WORKERS} workers, {len(rounds)} rounds",
        _figures(rounds),
    )
    chapter.notes = [
        "`number + 1` for each of the items, in order, from the call of `map` to the last result. Workers are warm.",
        "Ours has durable state; calls themselves are in memory only, and are sent again after a failover.",
    ]
    if not session.with_ray:
        chapter.notes.append(
            "Ray and Dask were not run: they are large; `scripts/bench --with-ray` fetches them."
        )
    return chapter


def _figures(rounds: list[dict[str, float]]) -> list[Figure]:
    figures = [Figure(f"{name}, calls", "/s", [each[name] for each in rounds]) for name in rounds[0]]
    others = [name for name in rounds[0] if name != "ours"]
    figures += [
        Figure(f"ours / {name}", "×", [each["ours"] / each[name] for each in rounds]) for name in others
    ]
    if others:
        best = [each["ours"] / max(each[name] for name in others) for each in rounds]
        figures.append(Figure("ours / the better one", "×", best, target=1.0))
    return figures


def _driver(session: Session, python: str, name: str, *words: str) -> Partner:
    folder = session.place(f"calls-{name}")
    isolated = [] if name == "phalanx" else ["-I"]
    driver = Partner([python, *isolated, _DRIVER, name, str(WORKERS), *words], folder, name)
    driver.hear()  # it has run a thousand calls by then
    session.machine.own({name: family(driver.pid)})
    return driver


def _peers(folder: Path) -> str:
    """A Python with Ray and Dask, in a venv of its own."""
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    subprocess.run([python, "-m", "pip", "-qq", "install", RAY, DASK], check=True)
    return python
