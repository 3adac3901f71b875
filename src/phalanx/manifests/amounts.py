"""What the containers of a pod ask for, added up as Kubernetes does, in our units: cores, bytes, devices.

Resources that Phalanx does not count give a caution. Cores are exact to the thousandth, as in Kubernetes. The caller
decides what to do with parts of devices: a task gets whole ones, while pods in a cluster may share them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from phalanx.core.model.amounts import MEMORY_BYTES_MIN, format_bytes, written
from phalanx.core.model.resources import Cores
from phalanx.manifests import quantities
from phalanx.manifests.quantities import NANO
from phalanx.manifests.view import View

CPU, MEMORY = "cpu", "memory"
MILLICORE = NANO // 1000
WHOLE_DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
PERCENT_OF_DEVICE = ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
SHARED_DEVICES = "koordinator.sh/gpu.shared"
DEVICE_MEMORY = "koordinator.sh/gpu-memory"
COUNTED = frozenset({CPU, MEMORY, *WHOLE_DEVICES, *PERCENT_OF_DEVICE, SHARED_DEVICES, DEVICE_MEMORY})
UNCOUNTED_TEXT = "is not counted here: cores, memory and GPUs are, so nothing is asked for it"

Ask = dict[str, int]  # billionths of each resource


class Amounts(Struct, frozen=True):
    """A pod's request, exact; `gpus` are rounded up."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    gpu_percent: int = 0
    gpu_memory_bytes: int = 0  # of each device

    @property
    def cores(self) -> Cores:
        return written(self.cpu_millis)

    @property
    def gpus(self) -> int:
        return -(-self.gpu_percent // 100)


def read_amounts(pod: View) -> Amounts:
    """What all containers of a pod spec ask for together."""
    total: Ask = {}
    for container in pod.views("containers"):
        _add(total, _asked(container))
    highest: Ask = {}
    for container in pod.views("initContainers"):
        ask = _asked(container)
        if container.content.get("restartPolicy") == "Always":  # it runs beside the others
            _add(total, ask)
        else:
            highest = {name: max(highest.get(name, 0), ask.get(name, 0)) for name in highest | ask}
    for name, amount in highest.items():
        total[name] = max(total.get(name, 0), amount)
    if "overhead" in pod:
        _add(total, _quantities(pod.view("overhead"), COUNTED))
    return to_amounts(_with_least(pod, total))


def _with_least(pod: View, ask: Ask) -> Ask:
    """A pod may ask for less memory than a task can be limited to."""
    asked, least = ask.get(MEMORY, 0), MEMORY_BYTES_MIN * NANO
    if not 0 < asked < least:
        return ask
    text = f"asks for {_ceil(asked)} bytes of memory; a task has at least {format_bytes(MEMORY_BYTES_MIN)}"
    pod.note("containers", text, "")
    return ask | {MEMORY: least}


def to_amounts(ask: Ask) -> Amounts:
    """A request in our units."""
    percent = 100 * sum(_ceil(ask.get(name, 0)) for name in WHOLE_DEVICES)
    parts = max(_ceil(ask.get(name, 0)) for name in PERCENT_OF_DEVICE)
    percent += max(parts, 100 * _ceil(ask.get(SHARED_DEVICES, 0)) if not parts else 0)
    memory = _ceil(ask.get(DEVICE_MEMORY, 0))
    if memory and not percent:
        percent = 100
    gpus = -(-percent // 100)
    return Amounts(
        cpu_millis=-(-ask.get(CPU, 0) // MILLICORE),
        memory_bytes=_ceil(ask.get(MEMORY, 0)),
        gpu_percent=percent,
        gpu_memory_bytes=-(-memory // gpus) if gpus else 0,
    )


def _asked(container: View) -> Ask:
    """Requests, and limits where there is no request."""
    resources = container.view("resources")
    limits = _quantities(resources.view("limits"), COUNTED)
    requests = _quantities(resources.view("requests"), COUNTED)
    for name in sorted(limits.keys() & requests.keys()):
        if limits[name] != requests[name] and not container.source.for_plan:
            resources.view("limits").caution(name, "a task is limited to what it asks for, which is less")
    return limits | requests


def _quantities(view: View, names: Iterable[str]) -> Ask:
    found: Ask = {}
    for name in names:
        if name in view:
            found[name] = read_quantity(view, name)
    for name in view.content:
        if name not in found:
            view.note(name, UNCOUNTED_TEXT)
            view.skip(name)
    return found


def read_quantity(view: View, name: str) -> int:
    """One quantity in billionths; a negative one is refused."""
    value = view.get(name)
    try:
        amount = quantities.nanos(value)
    except ValueError as error:
        view.refuse(name, str(error), "taken as 0")
        return 0
    if amount < 0:
        view.refuse(name, f"{value} is below zero", "taken as 0")
        return 0
    if name == CPU and amount % MILLICORE:
        view.refuse(name, f"{value} is finer than a thousandth of a core (1m)", "rounded up")
    if name in WHOLE_DEVICES and amount % NANO:
        view.refuse(name, f"{value} is not a whole number, and devices are given out whole", "rounded up")
    return amount


def _ceil(amount: int) -> int:
    return -(-amount // NANO)


def _add(total: Ask, more: Ask) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
