"""One group of a job and how close members stand, as they travel over REST and as job files write them, and how they
become a `Group` and a `Gather`.

`field` is where the group stands, such as `groups[0].`, and is put before the name of what is refused. What holds
groups together is `api/schema/jobspec.py`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from msgspec import Struct, structs

from phalanx.api.schema.fields import (
    check_count,
    check_name,
    check_number,
    check_object,
    check_text,
    read_command,
    read_cores,
    read_memory,
    read_tags,
    shown,
)
from phalanx.core.model.array import TASKS_MAX, Array
from phalanx.core.model.containers import required_labels
from phalanx.core.model.job import GANG_TASKS_MAX, Command, Gather, Group, host_name
from phalanx.core.model.resources import ISOLATED, Cores, Request, Target, TargetError, parse_target
from phalanx.core.model.topology import LAYERS_MAX
from phalanx.errors import BadRequest

CORES_MAX = 65_536
GPUS_MAX = 1024
GPU_TYPE_BYTES_MAX = 64
TEXT_BYTES_MAX = 1000
LABELS_MAX = 64
LABEL_BYTES_MAX = 512
INDEX_MAX = 1 << 31
AFTER_MAX = 64
NODES_MAX = 1000
NAMED_TASKS_MAX = 1000  # of those that start one by one: each is told of all others
Network = Literal["node", "overlay"]  # the node's, or one with an address for each task


_SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")


class AfterSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group that has to come first, and how far it must have come."""

    group: str
    when: Literal["started", "completed"] = "started"


class GroupSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tasks with one command and one request. Give `command` (an argv list) or `shell` (for /bin/sh)."""

    name: str = ""
    tasks: int = 1
    min: int = 0  # how many a gang cannot start without; 0: all
    optional: bool = False  # a gang starts without any of them
    command: list[str] = []
    shell: str | None = None
    cores: Cores = 1
    memory: int | str = 0
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory: int | str = 0  # of each device
    target: str | None = None  # host[:numa][::gpus]
    labels: dict[str, str] = {}  # what the node must carry
    require_isolation: bool = False  # only nodes that hold tasks to all that they were granted
    nodes: list[str] = []  # only on these nodes; empty: on any
    exclude: list[str] = []  # on none of these
    exclusive: bool = (
        False  # each task has a node for itself: it starts on an empty one and is given all of it
    )
    spread: bool = False  # tasks are put on as many different nodes as there is room on
    env: dict[str, str] = {}
    cwd: str | None = None
    at_once: int = 0  # how many tasks of each replica may hold a place at one time; 0: all
    replicas: int = 1  # divides the tasks into equal runs, as JobSet's jobs do
    indexes: list[int] = []  # each task's index in the network, where it is not its place in the group
    after: list[AfterSpec] = []
    objects: list[str] = []  # what Kubernetes calls each task: namespace/name
    tags: dict[str, str] = {}  # what `ps -l` selects by; they change nothing about where it runs
    network: Network = "node"  # overlay: each task has an address of its own
    image: str = (
        ""  # a container: a name in a registry, /path/image.tar, or rootfs:/path; `cwd` is a folder in it
    )
    mounts: list[str] = []  # what of the node the container sees: SRC:DST[:ro], where the node allows it
    split_output: bool = False  # two logs, of standard output and standard error, instead of one
    attached: bool = False  # a client shows its output: the task is stopped while that is far behind
    stdin: bool = False  # a client gives the first task standard input; without, it is empty


class GatherSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How close members stand: in one domain of `layer` (must), or in as few as possible."""

    layer: str
    must: bool = False
    multiple: int = 1  # every domain of the layer holds a multiple of that many members


GatherRules = str | GatherSpec | Sequence[str | GatherSpec]  # as people write them


def parse_gather_rules(given: GatherRules) -> list[GatherSpec]:
    """Rules as people write them: one or several, each with its fields or as text."""
    each = [given] if isinstance(given, str | GatherSpec) else given
    return [parse_gather(rule) if isinstance(rule, str) else rule for rule in each]


def parse_gather(text: str) -> GatherSpec:
    """`rack` is a preference, `rack:must` a rule, `rack:must:4` has multiples of 4 in each domain of the layer."""
    layer, _, rest = text.partition(":")
    word, _, multiple = rest.partition(":")
    if not layer or word not in ("", "must", "prefer") or not (multiple or "1").isdecimal():
        raise BadRequest(f"{text!r} is not a rule: write LAYER, LAYER:must or LAYER:must:MULTIPLE")
    return GatherSpec(layer, word == "must", int(multiple or 1))


def to_group(spec: GroupSpec, field: str, *, alone: bool, array: Array | None = None) -> Group:
    """The group a spec describes; `alone` says that it is the only one and needs no name."""
    if spec.name or not alone:
        check_name(f"{field}name", spec.name)
    tasks = spec.tasks if array is None else len(array)
    at_once = spec.at_once or (array.at_once if array is not None else 0)
    _check_counts(spec, tasks, at_once, field)
    _check_indexes(spec.indexes, tasks, field)
    check_count(f"{field}after", len(spec.after), AFTER_MAX)
    _check_objects(spec.objects, tasks, field)
    return Group(
        command=_command(spec, field, array),
        request=_request(spec, field),
        name=spec.name,
        tasks=tasks,
        min=spec.min,
        optional=spec.optional,
        at_once=0 if at_once >= tasks // spec.replicas else at_once,
        replicas=spec.replicas,
        indexes=tuple(spec.indexes),
        after=tuple((each.group, each.when) for each in spec.after),
        objects=tuple(spec.objects),
        tags=read_tags(f"{field}tags", spec.tags),
    )


def _command(spec: GroupSpec, field: str, array: Array | None) -> Command:
    if spec.stdin and array is not None:
        raise BadRequest(f"{field}stdin: given with an array, whose tasks have no standard input")
    command = read_command(
        *(spec.command, spec.shell, spec.env, spec.cwd),
        *(field, spec.image, spec.mounts, spec.split_output),
    )
    if not spec.attached and not spec.stdin:
        return command
    return structs.replace(command, attached=spec.attached, stdin=spec.stdin)


def check_after(groups: tuple[Group, ...]) -> None:
    """Refuse names that stand twice, waiting for a group that is not there, and waiting in a circle."""
    numbers: dict[str, int] = {}
    hosts: dict[str, int] = {}
    for number, group in enumerate(groups):
        if group.name in numbers:
            raise BadRequest(
                f"groups[{number}].name: {shown(group.name)} is already the name of groups[{numbers[group.name]}]"
            )
        if (host := host_name(group.name)) in hosts:
            raise BadRequest(
                f"groups[{number}].name: {shown(group.name)} and {shown(groups[hosts[host]].name)} would give their"
                f" tasks the same host names, which have {shown(host)}: choose another"
            )
        numbers[group.name] = hosts[host] = number
    for number, group in enumerate(groups):
        for name, _ in group.after:
            if name not in numbers:
                there = ", ".join(filter(None, numbers)) or "none has a name"
                raise BadRequest(f"groups[{number}].after: there is no group {shown(name)} (groups: {there})")
    try:
        TopologicalSorter({group.name: [name for name, _ in group.after] for group in groups}).prepare()
    except CycleError as error:
        ring: list[str] = list(reversed(error.args[1]))
        first = numbers[ring[0]]
        raise BadRequest(
            f"groups[{first}].after: groups wait for each other in a circle: {' → '.join(ring)}"
        ) from None


def _check_counts(spec: GroupSpec, tasks: int, at_once: int, field: str) -> None:
    check_number(f"{field}tasks", tasks, 1, TASKS_MAX)
    check_number(f"{field}replicas", spec.replicas, 1, TASKS_MAX)
    check_number(f"{field}at_once", at_once, 0, TASKS_MAX)
    check_number(f"{field}min", spec.min, 0, TASKS_MAX)
    if spec.optional and spec.min:
        raise BadRequest(f"{field}min: {spec.min} contradicts optional: true, with which none is needed")
    if spec.min > tasks:
        raise BadRequest(
            f"{field}min: {spec.min} is above tasks, which is {tasks}: at most all of them can be needed"
        )
    if tasks % spec.replicas:
        less, more = tasks // spec.replicas * spec.replicas, -(-tasks // spec.replicas) * spec.replicas
        raise BadRequest(
            f"{field}replicas: {spec.replicas} does not divide {tasks} tasks into equal runs,"
            f" {f'{less} or ' if less else ''}{more} tasks would do"
        )


def _check_indexes(indexes: list[int], tasks: int, field: str) -> None:
    if not indexes:
        return
    if len(indexes) != tasks:
        raise BadRequest(
            f"{field}indexes: {len(indexes)} are given for {tasks} tasks, give one for each or none"
        )
    seen: set[int] = set()
    for index in indexes:
        check_number(f"{field}indexes", index, 0, INDEX_MAX)
        if index in seen:
            raise BadRequest(f"{field}indexes: {index} is given twice, each task needs its own")
        seen.add(index)


def _check_objects(objects: list[str], tasks: int, field: str) -> None:
    if not objects:
        return
    if len(objects) != tasks or tasks > GANG_TASKS_MAX:
        raise BadRequest(
            f"{field}objects: {len(objects)} are given for {tasks} tasks, give one for each of at most"
            f" {GANG_TASKS_MAX}, or none"
        )
    seen: set[str] = set()
    for name in objects:
        check_object(f"{field}objects", name)
        if name in seen:
            raise BadRequest(f"{field}objects: {shown(name)} is given twice, each task needs its own")
        seen.add(name)


def _request(spec: GroupSpec, field: str) -> Request:
    check_number(f"{field}gpus", spec.gpus, 0, GPUS_MAX)
    if spec.gpu_type is not None:
        check_text(f"{field}gpu_type", spec.gpu_type, GPU_TYPE_BYTES_MAX)
        if not (spec.gpu_type.isascii() and spec.gpu_type.isprintable() and spec.gpu_type):
            raise BadRequest(f"{field}gpu_type: {shown(spec.gpu_type)} is not a device type, such as h100")
    target = _target(spec, field)
    _check_places(spec, target, field)
    gpus = len(target.devices) if target and target.devices else spec.gpus
    gpu_memory = read_memory(f"{field}gpu_memory", spec.gpu_memory, "a device")
    if gpus == 0 and (spec.gpu_type is not None or gpu_memory):
        vain = "gpu_type" if spec.gpu_type is not None else "gpu_memory"
        given = f" --gpu-type {spec.gpu_type}" if spec.gpu_type is not None else ""
        raise BadRequest(
            f"{field}{vain}: given without devices: set gpus",
            hint=f"write gpus: 1; on the command line --gpus 1{given}",
        )
    return Request(
        cores=read_cores(f"{field}cores", spec.cores, CORES_MAX),
        memory_bytes=read_memory(f"{field}memory", spec.memory),
        gpus=gpus,
        gpu_type=None if spec.gpu_type is None else spec.gpu_type.lower(),  # as nodes list kinds
        gpu_memory_bytes=gpu_memory,
        target=target,
        labels=_labels(spec, field),
        addresses=int(spec.network == "overlay"),
        nodes=read_nodes(f"{field}nodes", spec.nodes),
        exclude=read_nodes(f"{field}exclude", spec.exclude),
        exclusive=spec.exclusive,
        spread=spec.spread,
    )


def read_nodes(field: str, names: list[str]) -> tuple[str, ...]:
    """Names of nodes, each once; those of hosts know no case, and nodes have theirs in lower case."""
    check_count(field, len(names), NODES_MAX)
    for name in names:
        check_name(field, name.lower())
    return tuple(sorted({name.lower() for name in names}))


def _check_places(spec: GroupSpec, target: Target | None, field: str) -> None:
    """Refuse what leaves no node, or says twice where a task runs."""
    if spec.nodes and set(spec.nodes) <= set(spec.exclude):
        raise BadRequest(f"{field}nodes: all of them are in exclude, so no node is left: leave one out there")
    check_target(field, spec.nodes, spec.exclusive, spec.spread, target)


def check_target(field: str, nodes: list[str], exclusive: bool, spread: bool, target: Target | None) -> None:
    """Refuse a target beside other nodes, or a part of a node for a task that wants all of it."""
    if target is None:
        return
    if nodes:
        raise BadRequest(
            f"{field}nodes: given beside target {shown(str(target))}: give one of them, not both"
        )
    if spread:
        raise BadRequest(
            f"{field}spread: it is for many nodes, and target {shown(str(target))} names one: give one of them"
        )
    if exclusive and (target.devices or target.numa is not None):
        raise BadRequest(
            f"{field}exclusive: it gives all of a node, and target {shown(str(target))} names a part of one:"
            f" give {target.host}"
        )


def read_names(names: bool, tasks: int) -> bool:
    """Whether tasks that start one by one know each other by name; those of a gang do without being asked."""
    if names and tasks == 1:
        raise BadRequest("names: given for a job of one task: there is nobody else to know by name")
    if names and tasks > NAMED_TASKS_MAX:
        raise BadRequest(f"names: {tasks} tasks are too many, at most {NAMED_TASKS_MAX} can know each other")
    return names


def read_subdomain(field: str, text: str) -> str:
    """What stands behind the host name of each member."""
    if text and _SUBDOMAIN.fullmatch(text) is None:
        raise BadRequest(
            f"{field}: {shown(text)} is not a domain name, give lower-case letters, digits, '-' and '.'"
        )
    return text


def _target(spec: GroupSpec, field: str) -> Target | None:
    if spec.target is None:
        return None
    try:
        target = parse_target(spec.target)
    except TargetError as error:
        raise BadRequest(f"{field}target: {error}") from None
    named = len(target.devices)
    if named and spec.gpus not in (0, named):
        raise BadRequest(
            f"{field}gpus: {spec.gpus} contradicts target {shown(spec.target)} with {named} named devices"
        )
    return target


def _labels(spec: GroupSpec, field: str) -> tuple[tuple[str, str], ...]:
    """What the node must carry; that it isolates tasks or runs containers are labels that only its runner gives it."""
    labels = spec.labels
    check_count(f"{field}labels", len(labels), LABELS_MAX)
    for key, value in labels.items():
        if not key:
            raise BadRequest(f"{field}labels: {shown(key)} is not a label, it must not be empty")
        check_text(f"{field}labels", key, LABEL_BYTES_MAX)
        check_text(f"{field}labels[{shown(key)}]", value, LABEL_BYTES_MAX)
    of_image = required_labels(
        spec.image, has_address=spec.network == "overlay", has_mounts=bool(spec.mounts)
    )
    own = {*of_image, *((ISOLATED,) if spec.require_isolation else ())}
    return tuple(sorted((labels | dict(own)).items()))


def read_gather(rules: list[GatherSpec], *, is_spread: bool = False) -> tuple[Gather, ...]:
    """How close members stand. Those that are spread over nodes may be kept in one domain, and no more than that."""
    check_count("gather", len(rules), LAYERS_MAX)
    seen: set[str] = set()
    for number, options in enumerate(rules):
        field = f"gather[{number}]"
        if not options.layer:
            raise BadRequest(f"{field}.layer: it is empty, name a layer such as rack")
        check_text(f"{field}.layer", options.layer, TEXT_BYTES_MAX)
        check_number(f"{field}.multiple", options.multiple, 1, TASKS_MAX)
        if options.layer in seen:
            raise BadRequest(
                f"{field}.layer: {shown(options.layer)} is named twice, say all about a layer in one place"
            )
        seen.add(options.layer)
        if is_spread and (not options.must or options.multiple > 1 or options.layer == "node"):
            raise BadRequest(
                f"{field}: spread asks for many nodes, and this rule for few: with spread only must rules of layers"
                f" above the nodes are taken, such as {{layer: rack, must: true}}"
            )
    return tuple(Gather(options.layer, options.must, options.multiple) for options in rules)


def read_affinity(text: str, *, is_spread: bool) -> str:
    """The key of running tasks that members stand near."""
    check_text("gang.affinity", text, TEXT_BYTES_MAX)
    if text and is_spread:
        raise BadRequest(
            "gang.affinity: it keeps members near running tasks, and spread asks for many nodes: give one of them"
        )
    return text
