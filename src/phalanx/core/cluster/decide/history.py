"""Which ended jobs and workflows may leave memory for the history: the oldest, when there are too many."""

from __future__ import annotations

from itertools import islice

from phalanx.core.cluster import events as e
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_events import WorkflowForgotten

FORGOTTEN_AT_ONCE = 1000
FORGOTTEN_BYTES_AT_ONCE = 16 << 20


def forget(state: ClusterState, now: float) -> list[e.Event]:
    """What leaves memory now. Nothing does while others are still to be told of what has ended."""
    if state.abandoned or state.abandoned_tasks or state.due:
        return []
    surplus = max(len(state.ended) - state.rules.ended_jobs_max, _over_bytes(state))
    events: list[e.Event] = []
    size = 0
    for id in islice(state.ended, min(max(surplus, 0), FORGOTTEN_AT_ONCE)):
        if size > FORGOTTEN_BYTES_AT_ONCE:  # each becomes a record, which takes its time
            break
        if not state.jobs[id].live:
            size += state.jobs[id].size_bytes
            events.append(e.JobForgotten(at=now, cause="history", job=id))
    return events + [WorkflowForgotten(at=now, cause="history", workflow=id) for id in _old_workflows(state)]


def _over_bytes(state: ClusterState) -> int:
    """How many ended jobs have to leave memory, the oldest first, for the others to be small enough."""
    over, count = state.ended_bytes - state.rules.results_bytes_max, 0
    for id in state.ended if over > 0 else ():
        if over <= 0:
            break
        over, count = over - state.jobs[id].result_bytes - state.jobs[id].size_bytes, count + 1
    return count


def _old_workflows(state: ClusterState) -> list[str]:
    """Ended workflows beyond the limits of their number, their stages and their bytes."""
    rules = state.rules
    flows = [state.workflows[id] for id in state.ended_workflows]
    count, stages = len(flows), sum(len(flow.phases) for flow in flows)
    held = sum(flow.result_bytes + flow.size_bytes for flow in flows)
    gone: list[str] = []
    for flow in flows:
        are_few = count <= rules.ended_workflows_max and stages <= rules.ended_stages_max
        if are_few and held <= rules.results_bytes_max:
            break
        gone.append(flow.workflow.id)
        count, stages = count - 1, stages - len(flow.phases)
        held -= flow.result_bytes + flow.size_bytes
    return gone
