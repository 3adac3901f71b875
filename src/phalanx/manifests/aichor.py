"""AIchor's manifest: `spec.operator: jobset | kuberay`, with a group for each of `spec.types`.

A jobset's tasks start as there is room for them, and may fail or be evicted `backoffLimit` times in all. A kuberay
experiment is a gang: a head that runs the command, and workers that join it.
"""

from __future__ import annotations

import shlex
from typing import cast

import msgspec

from phalanx.api.schema.groupspec import GroupSpec, Network
from phalanx.api.schema.jobspec import JobSpec, RestartSpec, SuccessSpec
from phalanx.core.model.amounts import SECONDS_MAX, written
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.job import RETRIES_MAX
from phalanx.core.model.resources import device_kind
from phalanx.manifests import quantities
from phalanx.manifests.amounts import MILLICORE
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.manifests.found import ParsedJob, knows_names, plain_name, tell_no_names
from phalanx.manifests.view import View

OPERATORS = ("jobset", "kuberay")
GIB = 1 << 30
RAY_PORT = 6379
HEAD = "head"
# A worker finds the head at the address of the first member, which every member of a gang gets.
JOIN = f'exec ray start --address="$PET_MASTER_ADDR:{RAY_PORT}" --block'
LEAD = f"ray start --head --port={RAY_PORT}"


def is_aichor(document: View) -> bool:
    """Whether a document is one of AIchor's: by its kind, or by fields that only AIchor has."""
    if str(document.content.get("kind", "")).lower() == "aichormanifest":
        return True
    spec = document.content.get("spec")
    return "kind" not in document and isinstance(spec, dict) and "operator" in spec


def read_aichor(document: View) -> ParsedJob:
    """Read one experiment."""
    document.skip("kind", "apiVersion")
    spec = document.view("spec")
    operator = spec.word("operator", OPERATORS, "")
    types = spec.view("types")
    if not types.content:
        raise spec.error("types", "there is none: name a group, with its count and resources")
    groups = [_group(types.view(name), name, spec) for name in types.content]
    name = document.text("name") or document.view("metadata").text("name") or operator
    limit = spec.view("restartPolicy").number("backoffLimit", 0, 0, RETRIES_MAX)
    if operator == "jobset":
        tell_no_names(groups, types)
    made = _jobset(groups, limit) if operator == "jobset" else _kuberay(groups, limit, types)
    network = cast(Network, spec.word("network", ("node", "overlay"), "node"))
    made = msgspec.structs.replace(
        made, name=plain_name(name, document), time_limit=_time_limit(spec), network=network
    )
    return ParsedJob(made, document.where(), f"default/{made.name}")


def _jobset(groups: list[GroupSpec], limit: int) -> JobSpec:
    restart = RestartSpec(whole=False, fails_job=True, shared=True, counts_evictions=True)
    return JobSpec(groups, restart=restart, max_retries=limit, names=knows_names(groups))


def _kuberay(groups: list[GroupSpec], limit: int, types: View) -> JobSpec:
    heads = [group for group in groups if group.name == HEAD]
    if len(heads) != 1 or heads[0].tasks != 1:
        raise types.error("", "kuberay needs one type head with count 1, beside its workers")
    head, workers = heads[0], [_all_at_once(group) for group in groups if group.name != HEAD]
    if not types.source.for_plan:
        line = head.shell if head.shell is not None else shlex.join(head.command)
        head = _running(head, f"{LEAD} && {line}")
        workers = [_running(worker, JOIN) for worker in workers]
        types.caution("", f"head runs {LEAD!r} and then the command, workers join it with {JOIN!r}", "")
    return JobSpec(
        [head, *workers],
        gang=True,
        restart=RestartSpec(whole=True, limit=limit, counts_evictions=True),
        success=SuccessSpec(groups=[HEAD]),
    )


def _all_at_once(group: GroupSpec) -> GroupSpec:
    return msgspec.structs.replace(group, at_once=0)  # a ray cluster lasts as long as its head


def _running(group: GroupSpec, line: str) -> GroupSpec:
    return msgspec.structs.replace(group, command=["/bin/sh", "-c", line], shell=None)


def _group(each: View, name: str, spec: View) -> GroupSpec:
    count = each.number("count", 1, 1, TASKS_MAX)
    completions = each.number("completions", 1, 1, TASKS_MAX)
    parallelisms = each.number("parallelisms", 1, 1, TASKS_MAX)
    command, shell = _command(each, spec)
    resources = each.view("resources")
    gpus, kind = _gpus(resources.view("accelerators"))
    cpus = _amount(resources, "cpus", _amount(resources, "cpu", quantities.NANO))
    if cpus % MILLICORE:
        raise resources.error("cpus", "finer than a thousandth of a core (1m)")
    return GroupSpec(
        name=plain_name(name, each),
        tasks=count * completions,
        replicas=count,
        at_once=0 if parallelisms >= completions else parallelisms,
        command=command,
        shell=shell,
        cores=written(cpus // MILLICORE),
        memory=_memory(resources, cpus),
        gpus=gpus,
        gpu_type=kind if gpus else None,
        env=_env(spec) | _env(each),
    )


def _command(each: View, spec: View) -> tuple[list[str], str | None]:
    """The type's own command, or the common one; AIchor writes a line for a shell."""
    spec.skip("command")
    if spec.source.for_plan:
        each.skip("command")
        return list(NOTHING_RUNS), None
    holder = each if "command" in each else spec
    if isinstance(holder.content.get("command"), list):
        return holder.strings("command"), None
    line = holder.text("command")
    if not line:
        raise holder.error("command", "there is none, and a process cannot run an image: say what to run")
    return [], line


def _env(view: View) -> dict[str, str]:
    env = view.view("env")
    return {key: env.text(key) for key in env.content}


def _memory(resources: View, cpus: int) -> int:
    """RAM in GB, given or as a ratio of the cores; read as GiB, so that a task never gets less than was meant."""
    if "ram" in resources:
        return -(-_amount(resources, "ram", 0) * GIB // quantities.NANO)
    return -(-_amount(resources, "ramRatio", 0) * cpus * GIB // quantities.NANO**2)


def _gpus(accelerators: View) -> tuple[int, str | None]:
    gpu = accelerators.view("gpu")
    count = gpu.number("count", 0, 0, 1024)
    gpu.skip("type")
    product = gpu.text("product")
    return count, device_kind(product) if product else None


def _amount(view: View, key: str, default: int) -> int:
    if key not in view:
        view.skip(key)
        return default
    value = view.get(key)
    try:
        amount = quantities.nanos(value)
    except ValueError as error:
        raise view.error(key, str(error)) from None
    if not 0 <= amount <= 1_000_000 * quantities.NANO:
        raise view.error(key, f"{value} is out of range, give 0 to 1000000")
    return amount


def _time_limit(spec: View) -> int | None:
    timeout = spec.number("timeout", 0, 1, SECONDS_MAX)
    return timeout or spec.number("activeDeadlineSeconds", 0, 1, SECONDS_MAX) or None
