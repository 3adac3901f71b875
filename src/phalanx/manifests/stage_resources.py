"""The resources that a stage asks for, and errors that name a field of its spec and the name that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from phalanx.api.schema.fields import shown
from phalanx.core.model.amounts import parse_cores
from phalanx.core.model.device_types import containing
from phalanx.core.model.resources import Cores
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.view import View

WILDCARDS = ("", "any", "auto", "*")


def wrong(view: View, path: str, text: str) -> ManifestError:
    """An error about a field of a stage's spec, which may have been inherited; the line is that of the stage."""
    before = view.path.removesuffix("spec").rstrip(".")
    path = path.removeprefix("spec.") if view.source.is_short else path
    where = f"{before}.{path}" if before else path
    return ManifestError(
        view.where(), ": ".join(filter(None, (view.source.title, where, text))), reason="InvalidField"
    )


def near(name: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """The known name that is most like this one; empty if none is."""
    found = difflib.get_close_matches(name[:80], sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else ""


def meant(name: str, known: Collection[str]) -> str:
    """The end of a message: the name that was probably meant."""
    found = near(name, known)
    return f", did you mean {found!r}?" if found else ""


def cores(view: View, path: str, value: Any) -> Cores:
    """A number of cores as written: 2, 0.5 or 500m."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong(view, path, f"{shown(value)} is not a number of cores, such as 2, 0.5 or 500m")
    try:
        return parse_cores(str(value))
    except ValueError as error:
        raise wrong(view, path, str(error)) from None


def hardware(view: View, resources: Any) -> dict[str, Any]:
    """What `resources.hardware` asks for, in the words of job files."""
    if resources is None:
        return {}
    hardware = mapping(view, "spec.resources", resources, ("hardware", "estimatedLoad")).get("hardware")
    if hardware is None:
        return {}
    found = mapping(view, "spec.resources.hardware", hardware, ("cpu", "memory", "gpu"))
    asked: dict[str, Any] = {}
    if (cpu := found.get("cpu")) is not None:
        asked["cores"] = cores(view, "spec.resources.hardware.cpu", cpu)
    if (memory := found.get("memory")) is not None:
        asked["memory"] = memory
    if (gpu := found.get("gpu")) is not None:
        asked |= _gpus(view, gpu)
    return asked


def _gpus(view: View, gpu: Any) -> dict[str, Any]:
    path = "spec.resources.hardware.gpu"
    if isinstance(gpu, int) and not isinstance(gpu, bool):
        return {"gpus": gpu}
    found = mapping(view, path, gpu, ("type", "count", "memory"))
    asked: dict[str, Any] = {"gpus": _number(view, f"{path}.count", found.get("count", 1))}
    kind = found.get("type", "")
    if not isinstance(kind, str):
        raise wrong(view, f"{path}.type", f"{shown(kind)} is not the name of a device, such as a100, or any")
    if kind.strip().lower() not in WILDCARDS:
        asked["gpu_type"] = containing(kind)
        if not asked["gpu_type"]:
            raise wrong(
                view, f"{path}.type", f"{shown(kind)} is not the name of a device, such as a100, or any"
            )
    if found.get("memory") is not None:
        asked["gpu_memory"] = found["memory"]
    return asked


def mapping(view: View, path: str, value: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(view, path, f"{shown(value)} is not a mapping of fields: {', '.join(fields)}")
    for key in value:
        if key not in fields:
            raise wrong(view, f"{path}.{key}", f"is unknown: known are {', '.join(fields)}")
    return value


def _number(view: View, path: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 9:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong(view, path, f"{shown(value)} is not a whole number")
    return value
