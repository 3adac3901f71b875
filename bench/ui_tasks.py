"""The tasks of a page's main thread, from a trace of Chromium: CPU time, which other programs do not lengthen.

A page stutters when one task keeps its main thread for long: a frame cannot be made before it ends.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CATEGORIES = ["toplevel", "devtools.timeline", "v8", "disabled-by-default-v8.gc"]
WORK = (
    "FunctionCall", "TimerFire", "FireAnimationFrame", "RunMicrotasks", "EvaluateScript", "EventDispatch", "HitTest",
    "UpdateLayoutTree", "Layout", "PrePaint", "Paint", "Layerize", "Commit", "ParseHTML", "MinorGC", "MajorGC",
)  # fmt: skip
SHORT_US = 1000  # shorter tasks are left out
RENDERER = "CrRendererMain"
TOP = 3


class Task(NamedTuple):
    """One task: how long it took, and what in it took longest."""

    cpu_ms: float
    wall_ms: float
    what: str


def traced(browser: Browser, page: Page, work: Callable[[], object]) -> list[Task]:
    """The tasks of the page's main thread while something is done, the one with most CPU time last."""
    browser.start_tracing(page=page, categories=CATEGORIES)
    try:
        work()
    finally:
        events: list[dict[str, Any]] = json.loads(browser.stop_tracing())["traceEvents"]
    return tasks_of(events)


def tasks_of(events: list[dict[str, Any]]) -> list[Task]:
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == RENDERER
    }
    own = [each for each in events if each.get("ph") == "X" and (each["pid"], each["tid"]) in mains]
    own.sort(key=lambda each: (each["ts"], -each["dur"]))
    found, outer = [], list[dict[str, Any]]()  # what is within nothing else is a task
    for each in own:
        if not outer or not _is_in(each, outer[-1]):
            outer.append(each)
    for task in outer:
        cpu_us = task.get("tdur", task["dur"])
        if cpu_us >= SHORT_US:
            inside = [each for each in own if each["name"] in WORK and _is_in(each, task)]
            found.append(Task(cpu_us / 1000, task["dur"] / 1000, _words(inside)))
    return sorted(found) or [Task(0.0, 0.0, "")]


def _is_in(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    within = outer["ts"] <= inner["ts"] <= outer["ts"] + outer["dur"]
    return bool(within and (inner["pid"], inner["tid"]) == (outer["pid"], outer["tid"]))


def _words(inside: list[dict[str, Any]]) -> str:
    """What took most CPU time; a function that calls another is counted with it."""
    spent: Counter[str] = Counter()
    for each in inside:
        data = each.get("args", {}).get("data", {})
        place = f" {data['url'].rsplit('/', 1)[-1]}:{data.get('columnNumber', '')}" if data.get("url") else ""
        spent[f"{each['name']}{place}"] += each.get("tdur", 0)
    return ", ".join(f"{name} {us / 1000:.0f} ms" for name, us in spent.most_common(TOP))
