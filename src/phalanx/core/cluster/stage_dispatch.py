"""By which mode a job is given its node, and what its specification says about where it is best run.

Models and datasets are found where FlowMesh's programs read them: as texts under certain keys, inside certain others.
A stage continues from the weights of another if it refers to that one's result inside a checkpoint, a model and the
like.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.dispatch import CONTEXT_MAX, CONTEXT_NAME_MAX, Dispatch, DispatchMode
from phalanx.core.model.job import Job
from phalanx.core.model.workflow import SPEC_VARIABLE

_MODEL_KEYS = frozenset(
    {"identifier", "model", "model_name", "base_model", "pretrained_model_name_or_path", "path"}
)
_MODEL_PLACES = frozenset(
    {
        "model", "models", "source", "reward_model", "value_model", "ref_model", "embedding", "adapter",
        "adapters",
    }
)  # fmt: skip
_DATA_KEYS = frozenset({"dataset_name", "name", "url", "path"})
_DATA_PLACES = frozenset({"data", "dataset", "datasets", "training", "validation", "evaluation", "graph"})
_NAMED_DATA_PLACES = frozenset({"data", "dataset", "datasets"})
_WEIGHTS = frozenset({"checkpoint", "weight", "weights", "model", "adapter", "lora", "load", "artifact"})
_KEYS = _MODEL_KEYS | _DATA_KEYS
_PLACES = _MODEL_PLACES | _DATA_PLACES | {"template"}
_DEPTH_MAX = 100
VALUES_MAX = 10_000  # of a specification that are looked at for names

_Path = tuple[str, ...]


def mode_of(state: ClusterState, job: Job, *, is_stage: bool) -> DispatchMode | None:
    """The mode of a job, as its queue or else, for stages of workflows, the cluster has it; None if none has."""
    if job.gang is not None:
        return None
    quota = state.queues.quotas.get(job.queue)
    named = None if quota is None else quota.dispatch_mode
    return named or (state.rules.dispatch.mode if is_stage else None)


def dispatch_of(state: ClusterState, job: Job, task_type: str = "") -> Dispatch | None:
    """How a job is to be given its node; None if no mode chooses it."""
    mode = mode_of(state, job, is_stage=job.workflow is not None)
    if mode is None:
        return None
    quota = state.queues.quotas.get(job.queue)
    return Dispatch(mode, task_type, selection=None if quota is None else quota.selection)


def dispatch_of_stage(
    state: ClusterState, flow: WorkflowState, stage: int, job: Job, spec: str
) -> Dispatch | None:
    """The same for the job that a stage has become, with what its specification names."""
    asked = flow.workflow.stages[stage]
    found = dispatch_of(state, job, asked.task_type)
    if found is None or found.mode != "adaptive" or not asked.spec:
        return found
    sticky = ""
    if state.rules.dispatch.sticky and asked.refers and not asked.task_type.startswith("lora"):
        sticky = _sticky_node(state, flow, stage)
    policy = state.rules.dispatch
    merges = asked.merges and policy.merge and policy.merge_max > 1 and job.tasks == 1
    key = _merge_key(job, spec, across_owners=policy.merge_across_owners) if merges else ""
    return msgspec.structs.replace(found, context=context_names(spec), sticky=sticky, merge_key=key)


def _merge_key(job: Job, spec: str, *, across_owners: bool) -> str:
    """What tasks have in common that may run as one: all that is asked for but the data and the system prompt."""
    group = job.groups[0]
    asked = msgspec.json.decode(spec)
    asked.pop("data", None)
    if isinstance(inference := asked.get("inference"), dict):
        inference.pop("system_prompt", None)
    env = {key: value for key, value in group.command.env.items() if key != SPEC_VARIABLE}
    owner = "" if across_owners else job.user
    rest = (
        owner,
        job.queue,
        job.priority,
        job.max_retries,
        job.time_limit_s,
        group.request,
        group.command.argv,
    )
    text = msgspec.json.encode((asked, env, group.command.cwd, *rest), order="sorted")
    return hashlib.sha256(text).hexdigest()[:32]


def context_names(spec: str) -> tuple[str, ...]:
    """The models and datasets that a specification names, in lower case, each once, in the order of the document.

    It is asked for every stage on the loop, so it passes over texts that cannot be names, and looks at so many values.
    """
    if "{" not in spec:
        return ()
    found: dict[str, None] = {}
    nowhere: frozenset[str] = frozenset()
    left: list[tuple[str, Any, frozenset[str], int]] = [("", msgspec.json.decode(spec), nowhere, 0)]
    for _ in range(VALUES_MAX):
        if not left or len(found) == CONTEXT_MAX:
            break
        key, value, above, depth = left.pop()  # above: the keys around it that mean anything
        if isinstance(value, str):
            if 0 < len(value) <= CONTEXT_NAME_MAX and (_is_model(key, above, depth) or _is_data(key, above)):
                found[value.lower()] = None
        elif isinstance(value, dict):
            inside = above | {key} if key in _PLACES else above
            named = [(name.lower(), each, inside, depth + 1) for name, each in value.items()]
            left += [each for each in reversed(named) if _may_matter(each[0], each[1])]
        else:
            left += [(key, each, above, depth) for each in reversed(value) if _may_matter(key, each)]
    return tuple(found)


def _may_matter(key: str, value: Any) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and key in _KEYS)


def _is_model(key: str, above: frozenset[str], depth: int) -> bool:
    return key in _MODEL_KEYS and (not _MODEL_PLACES.isdisjoint(above) or (key == "model" and depth == 1))


def _is_data(key: str, above: frozenset[str]) -> bool:
    if key not in _DATA_KEYS or _DATA_PLACES.isdisjoint(above):
        return False
    return key != "name" or (not _NAMED_DATA_PLACES.isdisjoint(above) and "template" not in above)


def _sticky_node(state: ClusterState, flow: WorkflowState, stage: int) -> str:
    """The node of the first stage whose weights this one continues from; empty if there is none."""
    stages = flow.workflow.stages
    texts = [(path, text) for path, text in _texts(msgspec.json.decode(stages[stage].spec)) if "${" in text]
    for other in stages[stage].after:
        reference = f"${{{stages[other].name}.result"
        if any(reference in text and _is_weights(path, text) for path, text in texts):
            number = flow.stage_nodes[other]
            name = state.known_names[number - 1] if number else ""
            return name if name in state.nodes else ""
    return ""


def _is_weights(path: _Path, text: str) -> bool:
    return not _WEIGHTS.isdisjoint(path) or any(word in text for word in _WEIGHTS)


def _texts(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Every text in a document, with the keys that lead to it."""
    if isinstance(value, str):
        if path:
            yield path, value
    elif len(path) >= _DEPTH_MAX:
        return
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key.lower()))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, path)
