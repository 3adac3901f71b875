"""Why a stage that has no job waits or ended, and why a workflow as a whole is as it is. Of jobs, `explain.py` speaks.

What a stage or a condition was given is for those who may see inside of the workflow: `with_values` says who asks.
"""

from __future__ import annotations

from phalanx.core.cluster.stage_inputs import needs_in_words, needs_of, texts_of
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model import reason
from phalanx.core.model.amounts import plural
from phalanx.core.model.orders import Status
from phalanx.core.model.reason import Reason
from phalanx.core.model.references import Unresolved, references

NAMED_MAX = 5  # stages that a sentence names
STATES_MAX = 100  # whose states programs get
_TEXTS = {
    StagePhase.COMPLETED: "It has completed",
    StagePhase.SKIPPED: "It was skipped: its condition does not hold",
    StagePhase.FAILED: "It failed",
    StagePhase.CANCELLED: "It was cancelled",
}


def explain_stage(
    state: ClusterState, flow: WorkflowState, number: int, *, with_values: bool
) -> list[Reason]:
    """Why a stage without a job is as it is, the dominant reason first."""
    phase = flow.phase(number)
    if phase.is_over:
        return _ended(flow, number, with_values=with_values)
    found: list[Reason] = []
    if missing := flow.waits_for(number):
        found.append(_waits(state, flow, missing))
        if before := _begun_before(flow, missing):
            found.append(_waits(state, flow, before))
    stage, names = flow.workflow.stages[number], flow.workflow.stages
    if stage.condition is not None:
        asked = stage.condition
        found.append(
            reason.waiting_condition(names[asked.stage].name, ".".join(asked.path), asked.equals[:200])
        )
    if used := [each for each in _used(flow, number) if each in missing]:
        found.append(reason.waiting_reference(_names(flow, used)))
    if not missing:
        found.insert(0, _awaited(flow, number))
    return found


def _waits(state: ClusterState, flow: WorkflowState, stages: list[int]) -> Reason:
    """For stages, the state of each; programs get more of them than the sentence names."""
    states = {flow.workflow.stages[each].name: _word(state, flow, each) for each in stages[:STATES_MAX]}
    return reason.waiting_stages(_with_states(state, flow, stages), states, len(stages))


def _used(flow: WorkflowState, number: int) -> list[int]:
    """The stages whose results or artifacts a stage refers to."""
    stage = flow.workflow.stages[number]
    if not stage.refers:
        return []
    found = (each for text in texts_of(stage) for each in references(text, flow.numbers) if not each.is_id)
    return list(dict.fromkeys(flow.numbers[each.stage] for each in found))


def _ended(flow: WorkflowState, number: int, *, with_values: bool) -> list[Reason]:
    """How it ended, and the first failure that led to it."""
    phase, note = flow.phase(number), flow.notes.get(number, "")
    parent = flow.parents.get(number)
    text = _TEXTS[phase]
    if note and (with_values or parent is not None):
        text = note[:1].upper() + note[1:]
    found = [reason.ended(phase.status.word, text)]
    first = number
    while first in flow.parents:
        first = flow.parents[first]
    if first not in (number, parent):
        name, word = flow.workflow.stages[first].name, flow.phase(first).status.word
        found.append(reason.ended(word, f"The first that did not complete is stage {name}, which is {word}"))
    return found


def _awaited(flow: WorkflowState, number: int) -> Reason:
    """All that it builds on has completed: values are being fetched for it."""
    try:
        needs = needs_of(flow, number)
    except Unresolved as error:
        return reason.waiting_files(str(error))
    if not needs:
        return reason.evaluating()
    text, trouble = needs_in_words(flow, needs), flow.awaited.get(number)
    text = text[:1].upper() + text[1:]
    return reason.waiting_files(f"{text}: {trouble}" if trouble else text)


def _begun_before(flow: WorkflowState, missing: list[int]) -> list[int]:
    """Where those wait that are waited for: the stages before them that have begun, if these are others."""
    seen, begun = set(missing), []
    looked = list(missing)
    for stage in looked:  # it grows while it is read
        if flow.phase(stage) == StagePhase.RELEASED:
            begun.append(stage)
        elif flow.phase(stage) == StagePhase.WAITING:
            fresh = [each for each in flow.waits_for(stage) if each not in seen]
            seen.update(fresh)
            looked += fresh
    return [] if set(begun) <= set(missing) else begun


def explain_workflow(state: ClusterState, flow: WorkflowState) -> tuple[list[Reason], list[int]]:
    """Why a workflow is as it is, and the stages whose jobs wait for a place, of which more can be said."""
    size = len(flow.phases)
    if flow.is_over:
        return _whole_end(flow), []
    pending: list[int] = []
    running: list[int] = []
    for each in flow.released():
        (pending if _status(state, flow, each) == Status.PENDING else running).append(each)
    found = []
    if running:
        found.append(reason.stages_running(len(running), size, _with_states(state, flow, running)))
    if flow.awaited:
        names = _names(flow, list(flow.awaited))
        found.append(reason.waiting_files(f"Stages wait for values from the place for files: {names}"))
    if waiting := [
        each for each in range(size) if flow.phase(each) == StagePhase.WAITING and flow.missing[each]
    ]:
        found.append(reason.stages_waiting(len(waiting), size, _names(flow, waiting)))
    found += _first_failures(flow)
    return found or ([] if pending else [reason.evaluating()]), pending


def _whole_end(flow: WorkflowState) -> list[Reason]:
    """How it ended, and the stages that led to that."""
    size, word = len(flow.phases), flow.overall_status.word
    well = sum(phase in (StagePhase.COMPLETED, StagePhase.SKIPPED) for phase in flow.phases)
    text = f"{well} of {plural(size, 'stage')} completed"
    if flow.stopped:
        text = f"{flow.stopped[:1].upper()}{flow.stopped[1:]}; {text}"
    return [reason.ended(word, text), *_first_failures(flow)]


def _first_failures(flow: WorkflowState) -> list[Reason]:
    """The stages that did not complete, and not because of others."""
    own = [
        number
        for number, phase in enumerate(flow.phases)
        if phase in (StagePhase.FAILED, StagePhase.CANCELLED) and number not in flow.parents
    ]
    found = []
    for number in own[:NAMED_MAX]:
        name, word = flow.workflow.stages[number].name, flow.phase(number).status.word
        text = f"Stage {name} is {word}; `phalanx why {flow.workflow.id}:{name}` says why"
        found.append(reason.ended(word, text))
    return found


def _status(state: ClusterState, flow: WorkflowState, number: int) -> Status:
    job = state.jobs.get(flow.job_id(number))
    return flow.phase(number).status if job is None else job.overall_status


def _with_states(state: ClusterState, flow: WorkflowState, stages: list[int]) -> str:
    """Stages and how far each is: train (Running), judge (Waiting)."""
    shown = [f"{flow.workflow.stages[each].name} ({_word(state, flow, each)})" for each in stages[:NAMED_MAX]]
    return _joined(shown, len(stages))


def _word(state: ClusterState, flow: WorkflowState, number: int) -> str:
    return "Waiting" if flow.phase(number) == StagePhase.WAITING else _status(state, flow, number).word


def _names(flow: WorkflowState, stages: list[int]) -> str:
    return _joined([flow.workflow.stages[each].name for each in stages[:NAMED_MAX]], len(stages))


def _joined(shown: list[str], count: int) -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more
