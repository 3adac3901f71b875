"""The stages as a workflow file has them: where each is written, its name, its spec, and what it comes after.

Under `spec` these are one task, a chain of `stages`, or the `nodes` of a `graph`. In the short form `name` and `stages`
are at the root, and the fields of a stage are beside its name. If a stage says there what it needs, the stages are a
graph, else a chain. Every stage inherits the spec at the top, merged deeply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phalanx.api.schema.fields import shown
from phalanx.core.model.job import is_job_id
from phalanx.core.model.workflow import STAGES_MAX
from phalanx.manifests.load import DEPTH_MAX
from phalanx.manifests.short_workflow import HEAD, NEEDS
from phalanx.manifests.stage_resources import meant
from phalanx.manifests.view import View

LIMITS = ("deadline", "budget")
ABOUT_STAGES = ("stages", "graph", "dependsOn", "condition", *LIMITS)
AFTER = "is unknown here: name the stages that come before this one, and jobs by their ids, in dependsOn"
_ENTRY_FIELDS = ("name", "id", "spec", "dependsOn")
_ELSEWHERE = {
    **dict.fromkeys(("depends_on", "dependson", "depends", "requires"), "needs"),
    **dict.fromkeys(("run", "script", "cmd"), "command"),
}

Entry = tuple[
    View, str, dict[str, Any], list[str], list[str]
]  # where, name, merged spec, stages and jobs before it


def entries(spec: View) -> Iterator[Entry]:
    """The stages, with the spec that each inherits and what it comes after."""
    if spec.source.is_short:
        yield from _short_entries(spec)
        return
    root = {
        key: value for key, value in spec.content.items() if key not in ABOUT_STAGES and value is not None
    }
    if "stages" in spec and "graph" in spec:
        raise spec.error("stages", "and graph are both given: a workflow is a chain of stages or a graph")
    if "stages" not in spec and "graph" not in spec:
        _, jobs = _split(spec, "dependsOn", [])
        if (condition := spec.content.get("condition")) is not None:
            raise spec.error("condition", f"{shown(condition)} is given, and there is no other stage to ask")
        yield spec, "task", root, [], jobs
        return
    _refuse_beside(spec, ("dependsOn", "condition"))
    is_chain = "stages" in spec
    views = _counted(spec, "stages", spec.views("stages")) if is_chain else _nodes(spec)
    names = [
        _name(view, f"{'stage' if is_chain else 'node'}-{number}")
        for number, view in enumerate(views, start=1)
    ]
    for number, (view, name) in enumerate(zip(views, names, strict=True)):
        own = view.view("spec")
        own.skip(*own.content)
        _refuse_limits(own)
        after, jobs = _split(view, "dependsOn", names)
        if "dependsOn" in own:
            more, others = _split(own, "dependsOn", names)
            after, jobs = after + more, jobs + others
        if is_chain and number and not (after or jobs):
            after = [names[number - 1]]
        yield view, name, _merged(root, own.content), after, jobs


def _short_entries(document: View) -> Iterator[Entry]:
    """The stages of the short form. One that says that it needs nothing makes a graph of them, too."""
    _refuse_beside(document, (*NEEDS, "condition"))
    if "graph" in document:
        raise document.error("graph", "and stages are both given: give stages alone")
    root = {
        key: value
        for key, value in document.content.items()
        if key not in (*HEAD, *ABOUT_STAGES) and value is not None
    }
    views = _counted(document, "stages", document.views("stages"))
    names = [
        view.text("name") or view.text("id") or f"stage-{number}"
        for number, view in enumerate(views, start=1)
    ]
    needs = [_needs(view) for view in views]
    for number, (view, name, key) in enumerate(zip(views, names, needs, strict=True)):
        view.skip(*view.content)
        _refuse_limits(view)
        _refuse_other_words(view)
        after, jobs = _split(view, key, names) if key else ([], [])
        if number and not any(needs):
            after = [names[number - 1]]
        own = {key: value for key, value in view.content.items() if key not in ("name", "id", *NEEDS)}
        yield view, name, _merged(_without_command(root, own), _with_shell(own)), after, jobs


def _refuse_other_words(view: View) -> None:
    """Fields of the other forms, and what the same is called in files of other programs."""
    for key in view.content:
        if key in ("spec", "stages", "graph"):
            raise view.error(key, "is unknown here: the fields of a stage are beside its name")
        if (ours := _ELSEWHERE.get(key.lower())) is not None and key not in NEEDS:
            raise view.error(key, f"is unknown, did you mean {ours!r}?")


def _needs(view: View) -> str:
    """The word by which a stage says what it needs; empty if it does not."""
    given = [key for key in NEEDS if key in view]
    if len(given) > 1:
        raise view.error(given[1], f"and {given[0]} are both given, and mean the same: give one of them")
    return "".join(given)


def _without_command(root: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What a stage inherits: no other command than its own."""
    if own.get("command") is None and own.get("shell") is None:
        return _with_shell(root)
    return {key: value for key, value in root.items() if key not in ("command", "shell")}


def _with_shell(spec: dict[str, Any]) -> dict[str, Any]:
    """A command that is one text is a line for the shell."""
    if not isinstance(spec.get("command"), str) or spec.get("shell") is not None:
        return spec
    return {"shell" if key == "command" else key: value for key, value in spec.items() if key != "shell"}


def _refuse_beside(spec: View, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in spec:
            raise spec.error(key, "belongs into a stage, not beside the stages")


def _refuse_limits(own: View) -> None:
    for key in LIMITS:
        if key in own:
            raise own.error(key, "is of the whole workflow: it belongs beside the stages, not into one")


def _nodes(spec: View) -> list[View]:
    graph = spec.view("graph")
    for key in graph.content:
        if key != "nodes":
            raise graph.error(key, "is unknown: a graph has nodes")
    return _counted(spec, "graph", graph.views("nodes"))


def _counted(spec: View, key: str, views: list[View]) -> list[View]:
    if len(views) > STAGES_MAX:
        raise spec.error(key, f"has {len(views)} stages, at most {STAGES_MAX}")
    return views


def _name(view: View, default: str) -> str:
    for key in view.content:
        if key not in _ENTRY_FIELDS:
            if key == "after":
                raise view.error(key, AFTER)
            raise view.error(
                key, f"is unknown here{meant(key, _ENTRY_FIELDS)}; a stage has {', '.join(_ENTRY_FIELDS)}"
            )
    return view.text("name") or view.text("id") or default


def _split(view: View, key: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Stages of this workflow that come first, and jobs elsewhere, which are given by their whole ids."""
    value = view.get(key)
    if value is None:
        return [], []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise view.error(key, f"{shown(value)} is not a list of names")
    known = set(names)
    jobs = [each for each in value if each not in known and is_job_id(each.partition(":")[0].lower())]
    stages = [each for each in value if each not in jobs]
    for each in stages:
        if each not in known:
            raise view.error(
                key,
                f"there is no stage {shown(each)}{meant(each, names)} (a job elsewhere is named by its whole id)",
            )
    return stages, [each.lower() for each in jobs]


def _merged(root: dict[str, Any], own: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """The root's fields with those of a stage over them."""
    merged = dict(root)
    for key, value in own.items():
        if value is None:
            continue
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and depth < DEPTH_MAX:
            merged[key] = _merged(before, value, depth + 1)
        else:
            merged[key] = value
    return merged
