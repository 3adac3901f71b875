"""The targets of a submission: each is read by itself, so that one that cannot be read refuses only itself.

How a target is written is told in `core/model/resources.py`.
"""

from __future__ import annotations

from phalanx.api.schema.documents import FailedTarget
from phalanx.api.schema.fields import check_count, check_number, shown
from phalanx.core.model.resources import DEVICES_MAX, INDEX_MAX, Target, TargetError, parse_target
from phalanx.errors import BadRequest

TARGETS_MAX = 1000

Place = tuple[str | None, Target | None]  # a target as written and as read; both None: any node


def read_places(
    targets: list[str], required_gpus: list[list[int]] | None
) -> tuple[list[Place], list[FailedTarget]]:
    """The targets of a submission with the devices wanted of each, and those that cannot be read."""
    devices = required_gpus or []  # an empty list means none at all, as in KohakuRiver
    if not targets:
        if devices:
            raise BadRequest(
                "No target node specified for GPU task is not allowed",
                hint="name a node in targets, or ask for a number of devices with gpus",
            )
        return [(None, None)], []
    check_count("targets", len(targets), TARGETS_MAX)
    if devices and len(devices) != len(targets):
        raise BadRequest(f"required_gpus length ({len(devices)}) must match targets length ({len(targets)})")
    return _read_targets(targets, devices or [[] for _ in targets])


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
