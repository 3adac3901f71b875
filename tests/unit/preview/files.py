"""Plans of the files in `examples`, or of texts in a test."""

from __future__ import annotations

from pathlib import Path

from phalanx.api.schema.apply import PlanReply
from phalanx.manifests.read import Manifests, read
from phalanx.preview.offline import Offline

EXAMPLES = Path(__file__).parent / "examples"
NOW = 1_000_000.0


def reading(*cluster: str, job: str = "") -> Manifests:
    """Files of `examples` by name, or texts, which have several lines."""
    jobs = [_text(job)] if job else []
    return read(jobs, cluster=[_text(each) for each in cluster], for_plan=True)


def offline(*cluster: str, job: str = "") -> Offline:
    return Offline(reading(*cluster, job=job), NOW)


def plan(*cluster: str, job: str = "") -> PlanReply:
    """What `phalanx plan --cluster … -f …` answers."""
    return offline(*cluster, job=job).plan()


def places(reply: PlanReply) -> dict[str, str]:
    """Which task goes where."""
    return {each.task.removeprefix("default/"): each.node for each in reply.placements}


def domains(reply: PlanReply) -> list[list[str]]:
    """The domains of the tasks, each once."""
    found = sorted({tuple(each.domain) for each in reply.placements})
    return [list(path) for path in found]


def evicted(reply: PlanReply) -> list[tuple[str, str]]:
    """Which task has to leave which node."""
    return [(each.task.removeprefix("default/"), each.node) for each in reply.evictions]


def dominant(reply: PlanReply) -> tuple[str, str]:
    """The code and the tier of the first reason."""
    first = reply.reasons[0]
    assert first.dominant
    return first.code, first.tier


def _text(named: str) -> tuple[str, str]:
    if "\n" in named:
        return "text.yaml", named
    return named, (EXAMPLES / named).read_text()
