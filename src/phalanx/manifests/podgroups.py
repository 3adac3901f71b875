"""What makes pods a gang: PodGroup objects, and the labels and annotations of Koordinator with the same meaning.

This module reads the terms, wherever they are. `gangs.py` decides which of them win, and which pods belong together.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import GatherSpec
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.job import Match
from phalanx.manifests.load import Map
from phalanx.manifests.quantities import go_seconds
from phalanx.manifests.view import View

LABEL = "pod-group.scheduling.sigs.k8s.io"
PREFIX = "gang.scheduling.koordinator.sh"
AFFINITY = "scheduling.koordinator.sh/network-topology-selector"
MATCHES = ("once-satisfied", "only-waiting", "waiting-and-running")
WAIT_S = 600.0  # Koordinator's default
NAMED_MAX = 1000


class Terms(Struct, frozen=True):
    """What one object says about its gang; None where it says nothing."""

    min: int | None = None
    total: int | None = None
    strict: bool | None = None
    match: Match | None = None
    wait_s: float | None = None
    groups: tuple[str, ...] | None = None
    gather: tuple[GatherSpec, ...] | None = None


class PodGroup(Struct, frozen=True):
    """A PodGroup object. `view` is where its errors point to."""

    name: str  # namespace/name
    terms: Terms
    view: View


def read_podgroup(document: View) -> PodGroup:
    """Read one PodGroup; its annotations win over its spec."""
    metadata, spec = document.view("metadata"), document.view("spec")
    name = full_name(metadata)
    given = read_terms(metadata)
    wait = spec.number("scheduleTimeoutSeconds", 0, -(1 << 31), 1 << 31)
    wait_s = given.wait_s
    if wait_s is None and wait > 0:
        wait_s = float(wait)
    minimum = given.min
    if minimum is None and "minMember" in spec:
        minimum = spec.number("minMember", 1, 1, TASKS_MAX)
    spec.skip("minMember")
    terms = Terms(minimum, given.total, given.strict, given.match, wait_s, given.groups, given.gather)
    return PodGroup(name, terms, metadata)


def gang_of(metadata: View) -> str:
    """The gang that a pod names, in its own namespace; empty if it names none."""
    labels, annotations = metadata.view("labels"), metadata.view("annotations")
    given = [
        _worded(labels, LABEL),
        _worded(labels, f"{LABEL}/name"),
        _worded(annotations, f"{PREFIX}/name"),
    ]
    name = next(filter(None, given), "")
    return f"{namespace_of(metadata)}/{name}" if name else ""


def read_terms(metadata: View) -> Terms:
    """The terms that the labels and annotations of an object hold."""
    labels, annotations = metadata.view("labels"), metadata.view("annotations")
    annotations.skip(f"{PREFIX}/timeout")  # left behind by old schedulers
    minimum = _count(annotations, f"{PREFIX}/min-available", least=1)
    fallback = _count(labels, f"{LABEL}/min-available", least=1)
    return Terms(
        min=fallback if minimum is None else minimum,
        total=_count(annotations, f"{PREFIX}/total-number", least=0),
        strict=_strict(annotations),
        match=_match(annotations, labels),
        wait_s=_wait(annotations),
        groups=_groups(annotations),
        gather=_gather(annotations),
    )


def member_index(metadata: View) -> int | None:
    """The index of a pod in the network."""
    return _count(metadata.view("annotations"), f"{PREFIX}/network-topology-index", least=0, most=1 << 31)


def full_name(metadata: View) -> str:
    """namespace/name of an object."""
    name = metadata.text("name") or metadata.text("generateName")
    if not name:
        raise metadata.error("name", "it is missing")
    return f"{namespace_of(metadata)}/{name}"


def namespace_of(metadata: View) -> str:
    return metadata.text("namespace", "default") or "default"


def _worded(view: View, key: str) -> str:
    """Text; a number that was not quoted is accepted as well."""
    value = view.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)[:80]
    raise view.error(key, f"{shown(value)} is not text: put it in quotes")


def _count(view: View, key: str, *, least: int, most: int = TASKS_MAX) -> int | None:
    text = _worded(view, key)
    if not text:
        return None
    if text.isascii() and text.lstrip("+-").isdecimal() and len(text) < 12 and least <= int(text) <= most:
        return int(text)
    view.refuse(key, f"{shown(text)} is not a whole number from {least} to {most}", "ignored")
    return None


def _strict(view: View) -> bool | None:
    mode = _worded(view, f"{PREFIX}/mode")
    if mode not in ("Strict", "NonStrict", ""):
        view.note(f"{PREFIX}/mode", "is neither Strict nor NonStrict, Strict is taken")
    return None if not mode else mode != "NonStrict"


def _match(annotations: View, labels: View) -> Match | None:
    alias = f"{LABEL}/match-policy"
    for view, key in ((annotations, f"{PREFIX}/match-policy"), (annotations, alias), (labels, alias)):
        policy = _worded(view, key)
        if policy in MATCHES:
            return cast("Match", policy)
        if policy:
            view.note(key, f"is none of {', '.join(MATCHES)}; {MATCHES[0]} is taken")
    return None


def _wait(view: View) -> float | None:
    key = f"{PREFIX}/waiting-time"
    text = _worded(view, key)
    if not text:
        return None
    try:
        return go_seconds(text)
    except ValueError as error:
        view.note(key, f"{error}; {WAIT_S:.0f}s are taken")
        return None


def _groups(view: View) -> tuple[str, ...] | None:
    key = f"{PREFIX}/groups"
    value = view.parsed(key)
    if value is None:
        return None
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or name.count("/") != 1 or not all(name.split("/")):
            view.refuse(key, f"{shown(name)} is not namespace/name", "ignored")
            return None
    if len(names) > NAMED_MAX:
        view.refuse(key, f"{len(names)} groups are too many, at most {NAMED_MAX} are read", "ignored")
        return None
    return tuple(dict.fromkeys(names)) or None


def _gather(view: View) -> tuple[GatherSpec, ...] | None:
    key = f"{PREFIX}/network-topology-spec"
    value = view.parsed(key)
    if value is None:
        return None
    if isinstance(value, list):
        value = Map({"gatherStrategy": value})
    if not isinstance(value, Map):
        raise view.error(
            key, f'{shown(value)} is not a topology spec, such as {{"gatherStrategy": [{{"layer": …}}]}}'
        )
    return tuple(_options(each) for each in view.inner(key, value).views("gatherStrategy"))


def _options(each: View) -> GatherSpec:
    layer = each.text("layer")
    if not layer:
        raise each.error("layer", "it is missing")
    strategy = each.word("strategy", ("MustGather", "PreferGather"), "")
    multiple: Any = each.number("podCountMultiple", 1, 0, TASKS_MAX)
    return GatherSpec(layer, strategy == "MustGather", multiple or 1)
