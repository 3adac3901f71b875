"""How the command line shows what belongs together: groups, gangs and their members."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from phalanx.api.schema.jobs import Counts, GangView, GroupView, JobView, RequestView, TaskView
from phalanx.cli.labels import label
from phalanx.cli.output import Table, clean, moment, size
from phalanx.cli.shell_exits import shell_code
from phalanx.core.model.amounts import describe_seconds, plural
from phalanx.core.model.reason import said

ENDED = ("Completed", "Failed", "Cancelled")
NODES_TOLD = 16
EARLIER = "an earlier attempt: "  # of a task on a node: its message is of the attempt before


def placed(job: JobView) -> str:
    """`16/16` members hold their places or have finished; once the job has ended, those that have completed."""
    assert job.gang is not None
    done = job.counts.completed if job.status in ENDED else job.gang.placed + job.finished
    told = ((job.finished, "finished"), (job.counts.failed, "failed"))
    beside = ", ".join(f"{count} {word}" for count, word in told if count)
    return f"{done}/{job.tasks if job.gang.members is None else job.gang.members}" + (
        f" ({beside})" if beside else ""
    )


def restarts(job: JobView) -> str | None:
    """How often the whole job has started anew, and how often it may."""
    if job.restart_limit is None:
        return None
    beside = f", and {job.setbacks} not counted" if job.setbacks else ""
    return f"{job.restarts} of {job.restart_limit} used{beside}"


def gang_fields(job: JobView) -> list[tuple[str, object]]:
    """What holds the job together and how far it has come, as fields of `show`."""
    gang = job.gang
    if gang is None:
        return []
    beside = f", {job.finished} finished" if job.finished else ""
    told = f"{gang.placed} of {job.tasks} placed{beside}, {gang.needed} needed"
    if gang.members is not None:
        told = f"{gang.members} of {gang.needed} members applied"
    if job.status in ENDED:
        told = counted(job.counts)
    return [
        ("Gang", f"{gang.phase}, {told}" if told else gang.phase),
        ("Ran on" if job.status in ENDED else "Nodes", _places(job)),
        ("Variables", _variables(job)),
        ("Gather", ", ".join(_rule(each.layer, each.must, each.multiple) for each in gang.gather)),
        ("Start attempts", _formation(gang)),
        ("Nominated", _nominated(gang)),
        ("Waits for", ", ".join(gang.promise.numbers or gang.promise.victims) if gang.promise else None),
    ]


def _places(job: JobView) -> str:
    """The nodes of its members."""
    more = ", …" if len(job.nodes) > NODES_TOLD else ""
    return ", ".join(job.nodes[:NODES_TOLD]) + more


def _variables(job: JobView) -> str:
    """What members find in their environment to meet each other; RANK is that of a process."""
    is_one_process = all(group.request.gpus <= 1 for group in job.groups)
    own = "RANK, WORLD_SIZE, LOCAL_RANK" if is_one_process else "PET_* for torchrun, which sets RANK"
    return f"PHALANX_RANK, PHALANX_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, {own}"


def group_lines(job: JobView) -> Iterable[str]:
    """The groups as a table."""
    narrows = {"COMMAND": 10, "REQUEST": 12, "STATUS": 12, "AFTER": 8, "GROUP": 8}
    headings = ("GROUP", "TASKS", "NEEDED", "STATUS", "REQUEST", "AFTER", "COMMAND")
    table = Table(*headings, narrows=narrows)
    for group in job.groups:
        table.add(
            group.name or "-",
            group.tasks,
            group.needed or None,
            counted(group.counts, group.finished),
            asked(group.request),
            ", ".join(group.after),
            _command(group),
        )
    return ["", *table.lines()]


def member_table(tasks: list[TaskView]) -> Table:
    """The members of a gang, by rank."""
    named = any(task.object for task in tasks)
    table = Table(
        "ID",
        *(["OBJECT"] if named else []),
        "GROUP",
        "RANK",
        "STATUS",
        "NODE",
        "GPUS",
        "ATTEMPT",
        "EXIT",
        "MESSAGE",
        narrows={"MESSAGE": 16, "OBJECT": 12, "GPUS": 6, "NODE": 8, "GROUP": 8},
        spare=("ATTEMPT", "EXIT"),
    )
    ordered = sorted(tasks, key=lambda task: (task.rank is None, task.rank or 0))
    for task in ordered:
        told = [each.message for each in task.conditions if each.message not in task.message]
        told = told if task.status not in ENDED else []
        message = task.message.replace(f"{EARLIER}phalanx: ", EARLIER)
        says = "; ".join(dict.fromkeys(map(said, filter(None, [task.preparing, message, *told]))))
        name = [task.object] if named else []
        table.add(
            label(task), *name, task.group, task.rank, standing(task), node_of(task),
            ",".join(map(str, task.devices)), task.attempt, shell_code(task.exit_code, task.reason), says,
        )  # fmt: skip
    return table


def node_of(task: TaskView) -> str | None:
    """Where a task is or was; of one that waits, the node that it is nominated for, in brackets."""
    if task.nominated_node is not None:
        return f"({task.nominated_node})"
    return None if task.status == "Pending" else task.node


def standing(task: TaskView) -> str:
    """The status of a task in one word, finer than the API's while it is on a node or has just left it."""
    if task.status == "Running" and task.exit_code == 0:
        return "Finished"  # it has done its part, and is Completed with its whole job
    if task.preparing:
        return "Preparing"
    if task.unreachable:
        return "Unreachable"
    return "Ready" if task.ready else "Paused" if task.paused else "Unread" if task.unread else task.status


def condition_lines(task: TaskView) -> Iterable[str]:
    """The conditions of a task, one a line."""
    for each in task.conditions:
        at = moment(each.last_transition_at)
        yield f"Condition:  {each.type}={each.status} ({each.reason}) at {at}: {each.message}"


def counted(counts: Counts, finished: int = 0) -> str:
    """`2 finished, 3 running, 1 failed`: finished members are not shown as running."""
    numbers: dict[str, int] = {"finished": finished, **structs.asdict(counts)}
    numbers["running"] -= finished
    return ", ".join(f"{count} {word}" for word, count in numbers.items() if count)


def asked(request: RequestView) -> str:
    """A request in a few words."""
    words = [plural(request.cores, "core")]
    if request.memory_bytes:
        words.append(size(request.memory_bytes))
    if request.gpus:
        words.append(f"{request.gpus} {request.gpu_type or ('GPU' if request.gpus == 1 else 'GPUs')}")
    if request.target:
        words.append(f"on {request.target}")
    words += [f"{name}={value}" for name, value in request.labels.items()]
    words += ["isolation"] if request.require_isolation else []
    words += ["exclusive"] if request.exclusive else []
    words += ["spread"] if request.spread else []
    words += [f"only on {','.join(request.nodes)}"] if request.nodes else []
    words += [f"not on {','.join(request.exclude)}"] if request.exclude else []
    return ", ".join(words)


def _command(group: GroupView) -> str:
    return clean(" ".join(group.command))


def _rule(layer: str, must: bool, multiple: int) -> str:
    text = f"{layer} ({'must' if must else 'prefer'})"
    return f"{text} in multiples of {multiple}" if multiple > 1 else text


def _formation(gang: GangView) -> str | None:
    now = gang.formation
    if now is None:
        return f"{gang.formations}" if gang.formations else None
    wait = describe_seconds(gang.wait_s)
    return f"number {now.number}: {now.ready} of {now.placed} placed members ready, all within {wait}"


def _nominated(gang: GangView) -> str | None:
    if gang.promise is None:
        return None
    nodes = ", ".join(f"{node} × {count}" for node, count in gang.promise.nominated.items())
    return f"{nodes}, reserved until {moment(gang.promise.until)}"
