"""Submissions: how one `SubmitRequest` becomes jobs, or a refusal that names the field.

Checked here is all that can be known without the cluster: words, limits, and fields that contradict each
other. Whether a node or a queue exists, and whether there is room, the coordinator says. A target that cannot
be read refuses only itself, so that the other targets of the request still get their jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.api.fields import (
    check_count,
    check_name,
    check_number,
    check_text,
    read_duration,
    read_size,
    shown,
)
from phalanx.api.schema import FailedTarget, SubmitRequest
from phalanx.core.model.array import Array, ArrayError, parse_array
from phalanx.core.model.job import PRIORITY_MAX, RETRIES_MAX, Command, Job
from phalanx.core.model.resources import Request
from phalanx.core.model.target import DEVICES_MAX, INDEX_MAX, Target, TargetError, parse_target
from phalanx.errors import BadRequest

ARGV_MAX = 4096
ARG_BYTES_MAX = 128 * 1024 - 1  # the kernel's limit for one string of exec, less its closing NUL
ARGV_BYTES_MAX = 1024 * 1024
ENV_MAX = 1000
ENV_BYTES_MAX = 1024 * 1024
PATH_BYTES_MAX = 4095
CORES_MAX = 65_536
GPUS_MAX = 1024
TARGETS_MAX = 1000
GRACE_S_MAX = 86_400.0
GRACE_S = 5.0
GPU_TYPE_BYTES_MAX = 64
REQUEST_ID_BYTES_MAX = 255

Place = tuple[str | None, Target | None]  # a target as written and as read; both None: any node


def to_jobs(
    request: SubmitRequest, *, new_id: Callable[[], str], now: float, user: str, default_retries: int
) -> tuple[list[tuple[str | None, Job]], list[FailedTarget]]:
    """One job per target that can be read (or one job, without targets), and the targets that cannot."""
    _refuse_vps(request)
    _check_labels(request)
    command, array = _command(request), _array(request)
    retries, time_limit_s, grace_s = _retries(request, default_retries), _time_limit(request), _grace(request)
    ask = _ask(request)
    places, failed = _places(request)
    jobs: list[tuple[str | None, Job]] = []
    for text, target in places:
        id = new_id()
        job = Job(
            id=id,
            command=command,
            request=ask if target is None else _aimed(ask, target, text),
            batch=jobs[0][1].id if jobs else id,
            submitted_at=now,
            name=request.name,
            queue=request.queue,
            priority=request.priority,
            array=array,
            time_limit_s=time_limit_s,
            max_retries=retries,
            grace_s=grace_s,
            user=user,
        )
        _refuse_vain_gpu_wishes(job.request)
        jobs.append((text, job))
    return jobs, failed


def check_request_id(request_id: str) -> None:
    """Refuse a request id that is empty, long, or not plain printable ASCII."""
    plain = request_id.isascii() and request_id.isprintable()
    if not (plain and 0 < len(request_id) <= REQUEST_ID_BYTES_MAX):
        raise BadRequest(
            f"request_id: {shown(request_id)} cannot be used: write 1 to {REQUEST_ID_BYTES_MAX} printable"
            " ASCII characters, such as a UUID"
        )


def _refuse_vps(request: SubmitRequest) -> None:
    if request.kind != "vps":
        return
    if len(request.targets) > 1:
        raise BadRequest("VPS tasks cannot be submitted to multiple targets")
    raise BadRequest("kind: 'vps' is not supported yet, give 'command'", reason="VpsUnsupported")


def _check_labels(request: SubmitRequest) -> None:
    if request.name:
        check_name("name", request.name)
    if request.queue != "default":
        check_name("queue", request.queue)
    if request.request_id is not None:
        check_request_id(request.request_id)
    check_number("priority", request.priority, -PRIORITY_MAX, PRIORITY_MAX)


def _command(request: SubmitRequest) -> Command:
    if request.command and request.shell is not None:
        raise BadRequest("command and shell: give one of them, not both")
    if request.cwd is not None:
        _check_cwd(request.cwd)
    _check_env(request.env)
    # The user's string is one argument of the shell, so nothing of ours is ever read as shell words.
    argv = tuple(request.command) if request.shell is None else ("/bin/sh", "-c", request.shell)
    _check_argv(argv, "command" if request.shell is None else "shell")
    return Command(argv, request.env, request.cwd)


def _check_argv(argv: tuple[str, ...], field: str) -> None:
    if not argv or not argv[0] or (field == "shell" and not argv[-1]):
        raise BadRequest(
            f"{field}: nothing to run: give command (a list such as ['python', 'train.py'])"
            " or shell (one string for /bin/sh)"
        )
    check_count(field, len(argv), ARGV_MAX)
    total = sum([check_text(field, each, ARG_BYTES_MAX) for each in argv])
    if total > ARGV_BYTES_MAX:
        raise BadRequest(f"{field}: {total} bytes in all are too many, at most {ARGV_BYTES_MAX} are allowed")


def _check_env(env: dict[str, str]) -> None:
    check_count("env", len(env), ENV_MAX)
    total = 0
    for name, value in env.items():
        if not name or "=" in name:
            raise BadRequest(f"env: {shown(name)} is not a variable name: it must not be empty or hold '='")
        total += check_text(f"env[{shown(name)}]", f"{name}={value}", ARG_BYTES_MAX)
    if total > ENV_BYTES_MAX:
        raise BadRequest(f"env: {total} bytes in all are too many, at most {ENV_BYTES_MAX} are allowed")


def _check_cwd(cwd: str) -> None:
    check_text("cwd", cwd, PATH_BYTES_MAX)
    if not cwd.startswith("/"):
        raise BadRequest(f"cwd: {shown(cwd)} is not an absolute path: begin it with '/'")


def _array(request: SubmitRequest) -> Array | None:
    if request.array is None:
        return None
    try:
        return parse_array(request.array)
    except ArrayError as error:
        raise BadRequest(str(error)) from None


def _retries(request: SubmitRequest, default: int) -> int:
    if request.max_retries is not None and request.max_attempts is not None:
        raise BadRequest(
            "max_retries and max_attempts: give one of them, not both (max_attempts counts the first run too)"
        )
    if request.max_attempts is not None:
        check_number("max_attempts", request.max_attempts, 1, RETRIES_MAX + 1)
        return request.max_attempts - 1
    if request.max_retries is None:
        return default
    check_number("max_retries", request.max_retries, 0, RETRIES_MAX)
    return request.max_retries


def _time_limit(request: SubmitRequest) -> float | None:
    return None if request.time_limit is None else read_duration("time_limit", request.time_limit)


def _grace(request: SubmitRequest) -> float:
    if request.grace is None:
        return GRACE_S
    if request.grace in (0, "0", "0s"):
        return 0.0  # SIGKILL at once: the only duration that may be nothing
    grace_s = read_duration("grace", request.grace)
    check_number("grace", grace_s, 0, GRACE_S_MAX)
    return grace_s


def _ask(request: SubmitRequest) -> Request:
    check_number("cores", request.cores, 0, CORES_MAX)
    check_number("gpus", request.gpus, 0, GPUS_MAX)
    if request.gpu_type is not None:
        check_text("gpu_type", request.gpu_type, GPU_TYPE_BYTES_MAX)
        if not (request.gpu_type.isascii() and request.gpu_type.isprintable() and request.gpu_type):
            raise BadRequest(f"gpu_type: {shown(request.gpu_type)} is not a device type, such as h100")
    return Request(
        cores=request.cores,
        memory_bytes=read_size("memory", request.memory),
        gpus=request.gpus,
        gpu_type=request.gpu_type,
        gpu_memory_bytes=read_size("gpu_memory", request.gpu_memory),
    )


def _places(request: SubmitRequest) -> tuple[list[Place], list[FailedTarget]]:
    devices = request.required_gpus or []  # seed 000 takes an empty list for none at all
    if not request.targets:
        if devices:
            raise BadRequest(
                "No target node specified for GPU task is not allowed",
                hint="name a node in targets, or ask for a number of devices with gpus",
            )
        return [(None, None)], []
    check_count("targets", len(request.targets), TARGETS_MAX)
    if devices and len(devices) != len(request.targets):
        raise BadRequest(
            f"required_gpus length ({len(devices)}) must match targets length ({len(request.targets)})"
        )
    return _read_targets(request.targets, devices or [[] for _ in request.targets])


def _read_targets(texts: list[str], devices: list[list[int]]) -> tuple[list[Place], list[FailedTarget]]:
    places: list[Place] = []
    failed: list[FailedTarget] = []
    for text, wanted in zip(texts, devices, strict=True):
        _check_devices(wanted)
        try:
            target = parse_target(text)
        except TargetError as error:
            failed.append(FailedTarget(text, "Misconfigured", str(error)))
        else:
            places.append((text, _with_devices(target, wanted)))
    return places, failed


def _check_devices(wanted: list[int]) -> None:
    check_count("required_gpus", len(wanted), DEVICES_MAX)
    for index in wanted:
        check_number("required_gpus", index, 0, INDEX_MAX)
    if len(set(wanted)) != len(wanted):
        raise BadRequest(f"required_gpus: {shown(wanted)} names a device twice")


def _with_devices(target: Target, wanted: list[int]) -> Target:
    if target.devices and wanted and set(target.devices) != set(wanted):
        raise BadRequest(
            f"targets and required_gpus contradict each other: {str(target)!r} names devices"
            f" {list(target.devices)}, required_gpus {shown(wanted)}; give them in one of the two"
        )
    return Target(target.host, target.numa, target.devices or tuple(wanted))


def _aimed(ask: Request, target: Target, text: str | None) -> Request:
    named = len(target.devices)
    if named and ask.gpus not in (0, named):
        raise BadRequest(f"gpus: {ask.gpus} contradicts target {shown(text)} with {named} named devices")
    return Request(
        ask.cores, ask.memory_bytes, named or ask.gpus, ask.gpu_type, ask.gpu_memory_bytes, target=target
    )


def _refuse_vain_gpu_wishes(ask: Request) -> None:
    """A wish that no device is asked for would be ignored in silence, so it is refused."""
    if ask.gpus == 0 and (ask.gpu_type is not None or ask.gpu_memory_bytes):
        field = "gpu_type" if ask.gpu_type is not None else "gpu_memory"
        raise BadRequest(f"{field}: given without a device: say how many with gpus, or name them in targets")
