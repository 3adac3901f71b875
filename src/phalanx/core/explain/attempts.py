"""What a task says that does not wait for a place: it holds one, or it has ended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from phalanx.core.cluster.cancels import who_cancelled
from phalanx.core.cluster.decide.nodes import holds_for
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.explain.change import Asker, Change
from phalanx.core.explain.gates import at_barrier, comes_first
from phalanx.core.model import reason
from phalanx.core.model.amounts import describe_bytes, describe_seconds, plural
from phalanx.core.model.job import Command
from phalanx.core.model.orders import Status, Why
from phalanx.core.model.reason import Reason

# What a program says that looked for a variable which its launcher sets: Python's words, and those of torch.
_UNSET = re.compile(
    r"KeyError: '((?:LOCAL_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE)'|variable (RANK|WORLD_SIZE) expected, but not set"
)


def why_placed(state: ClusterState, job: JobState, position: int, now: float) -> Reason:
    """What became of a task that does not wait: where it is, or how it ended."""
    status, attempt = Status(job.status[position]), job.live.get(position)
    if status.is_final:
        return _ended(state, job, position, status, attempt)
    return reason.finished() if attempt is None else _on_its_node(state, job, attempt, now)


def fix_placed(job: JobState, position: int, said: Reason, asker: Asker) -> Change | None:
    """What to do about it, where something can be done."""
    task, status = job.job.task_id(position), Status(job.status[position])
    if said.code == "LossesBraked" and asker.operates:
        host = said.numbers["host"]
        text = f"check whether the coordinator is cut off; if {host} is really gone, declare it lost"
        return Change(text, {}, f"phalanx node lose {host} --reason WHY")
    if said.code == "Paused" and asker.may_cancel(job.job):
        return Change("resume it", {}, f"phalanx resume {task}")
    if status != Status.FAILED or not asker.may_cancel(job.job):
        return None
    match Why(job.why[position]):
        case Why.OOM:
            asked = job.group_of(position).group.request.memory_bytes
            return Change(f"request more memory than {describe_bytes(asked)} with -m")
        case Why.TIMEOUT:
            return Change(f"set a --time-limit of more than {job.job.time_limit_s or 0:.0f} s")
        case Why.REFUSED:
            said_of_it = job.details.get(position, ("", ""))[0]
            return _fix_refused(job.group_of(position).group.command, said_of_it)
        case Why.EXITED if lacking := lacking_rank(job, position):
            return Change(lacking, {}, f"phalanx logs {task}")
        case Why.EXITED | Why.SIGNALLED:
            return Change("see its log", {}, f"phalanx logs {task}")
    return None


def lacking_rank(job: JobState, position: int) -> str:
    """Which variables there are, of a task that ended because it looked for one that torchrun sets; else nothing."""
    found = _UNSET.search(job.details.get(position, ("", ""))[1])
    if found is None:
        return ""
    has = "a task has PET_* for it"
    if job.gang is not None:
        has = "a member has PHALANX_RANK, PHALANX_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and PET_* for it"
    return f"start it with torchrun, which needs no options and sets {found[1] or found[2]}; {has}"


def _fix_refused(command: Command, message: str) -> Change:
    """What was wrong with what the node could not start."""
    if message.startswith("its environment cannot be opened"):
        return Change(
            "submit it again with its variables; or have an operator put the former secret back, below the newest in"
            " coordinator.secret_file, and resubmit it"
        )
    if len(command.argv) == 1 and " " in command.argv[0].strip():
        return Change("it was given as one word: put --shell before it, or leave out the quotes around it")
    if command.image:
        return Change(
            "check that the image is there, and has the program and the folder; see its mounts, too"
        )
    if message.startswith("working directory"):
        return Change(
            "a task runs in the folder it was submitted in: make that folder on all nodes, or name one with --cwd"
        )
    if message.startswith("no program") and "/" not in command.argv[0]:
        return Change(
            "a task has the PATH it was submitted with: install the program on the node, or name it by its path"
        )
    return Change("check that the program and the folder exist on the node and are executable")


def is_unreachable(state: ClusterState, job: JobState, attempt: Attempt) -> bool:
    """Whether an attempt runs, as far as is known, on a node that is not connected."""
    return job.status[attempt.key[1]] == Status.RUNNING and not state.nodes[attempt.node].connected


def count_unreachable(state: ClusterState, job: JobState, live: Sequence[Attempt]) -> int:
    """How many of these attempts are. Mostly all nodes are connected, and of a large job there are fewer nodes."""
    if len(live) > len(state.nodes) and all(node.connected for node in state.nodes.values()):
        return 0
    return sum(is_unreachable(state, job, each) for each in live)


def _on_its_node(state: ClusterState, job: JobState, attempt: Attempt, now: float) -> Reason:
    """What a task that holds a place is waiting for, or that it runs."""
    group, node = job.groups[attempt.group], state.nodes[attempt.node]
    if state.brake is not None and holds_for(state, node):
        return reason.losses_braked(attempt.node, state.brake.silent, state.brake.nodes)
    if attempt.ending is not None:
        condition = job.conditions.get(attempt.key[1])
        said = condition.message if condition is not None and attempt.ending == Why.EVICTED else ""
        return reason.leaving(attempt.node, attempt.ending.word, said)
    if is_unreachable(state, job, attempt):
        left_s = node.heard_at + node.kept_s + state.rules.lost_after_s - now
        return reason.running_unreachable(attempt.node, describe_seconds(max(0.0, round(left_s))))
    if job.status[attempt.key[1]] == Status.RUNNING:
        return reason.running(attempt.node, bool(attempt.paused))
    if attempt.formation and not attempt.released and job.forming is not None and job.gang is not None:
        return at_barrier(state, job, now)
    if attempt.formation and (first := next(comes_first(job, group), None)) is not None:
        return first
    if node.trouble:
        return reason.unhealthy(attempt.node, node.trouble)
    return reason.preparing(attempt.node) if attempt.preparing else reason.starting(attempt.node)


def _ended(
    state: ClusterState, job: JobState, position: int, status: Status, attempt: Attempt | None
) -> Reason:
    if status == Status.COMPLETED:
        return reason.ended(status.word, "exited with code 0")
    message = "" if attempt is not None else job.details.get(position, ("", ""))[0]
    if user := who_cancelled(job, position):  # what became of its attempt afterwards is no cause
        text = f"by {user}" if job.attempts[position] else f"by {user}, before it started"
        return reason.ended(status.word, text)
    why, code = Why(job.why[position]), job.exit_code(position)
    text = message or (f"exited with code {code}" if code else f"ended: {why.word}")
    if why == Why.CANCELLED and not message and not job.attempts[position]:
        text = "before it started"
    flow = None if job.job.workflow is None else state.workflows.get(job.job.workflow[0])
    if status == Status.CANCELLED and flow is not None and flow.stopped:
        text += f"; {flow.stopped}"
    if why == Why.EVICTED and position in job.conditions:
        text += f"; {reason.said(job.conditions[position].message)}"
    if status == Status.FAILED:
        text += _on_one_node(state, job, position) + _budget(job)
    return reason.ended(status.word, text)


def _on_one_node(state: ClusterState, job: JobState, position: int) -> str:
    """That all attempts of a task were on one node, where there are others."""
    count = job.attempts[position]
    if count < 2 or len(state.nodes) < 2:
        return ""
    first = job.node_number(position, 1)
    if first is None or any(job.node_number(position, each) != first for each in range(2, count + 1)):
        return ""
    which = "both" if count == 2 else f"all {count}"
    return f"; {which} attempts were on {state.known_names[first]}"


def _budget(job: JobState) -> str:
    """That the restarts of the whole job are used up, or who used the retries that its tasks share."""
    restart, used = job.job.restart, sum(job.charged.values())
    if job.restarts_whole and job.restarts and job.restarts >= restart.limit:
        return f"; the job had been restarted {job.restarts} of {restart.limit} times"
    if not restart.shared or used <= job.job.max_retries:
        return ""
    who = ", ".join(f"{job.job.task_id(each)} × {count}" for each, count in sorted(job.charged.items()))
    among = ", evictions and losses among them" if restart.counts_evictions else ""
    allowed, failed = plural(job.job.max_retries, "time"), plural(used, "time")
    return f"; the tasks of its job may be retried {allowed} in all, and failed {failed}{among}: {who}"
