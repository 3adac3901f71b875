"""How long work of one kind took on each class of hardware, so that choices and estimates rest on it.

A kind is a task type with the models that are loaded, for choices, or a stage by its name and those of its workflow and
user, for estimates. A choice asks for enough samples on every class of node that comes into question: numbers that are
known for some of them and guessed for others could not be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.core.model.dispatch import Dispatch
from phalanx.core.model.resources import Capacity

SAMPLES_MIN = 5  # so many ends on one class of hardware, before they count
KINDS_MAX = 10_000  # what is known of; the one that was learned first is forgotten
_WEIGHT = 0.2  # of the newest run
_SEPARATOR = "\x1f"


def hardware_class(capacity: Capacity) -> str:
    """Nodes with the same devices and as many cores are of one class."""
    kinds = sorted(device.kind for device in capacity.devices)
    return f"{capacity.cores:g}c {' '.join(kinds)}".rstrip()


def work_kind(asked: Dispatch) -> str:
    """Tasks of one type that load the same are of one kind."""
    return _SEPARATOR.join((asked.task_type, *asked.context))


def stage_kind(user: str, workflow: str, stage: str) -> str:
    """Stages of one name, of workflows of one name and user, are of one kind."""
    return _SEPARATOR.join((user, workflow, stage))


class RunTimes:
    """Means that forget, by kind of work and class of hardware."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[int, float]]] = {}  # number of samples and mean, in seconds

    def learn(self, kind: str, capacity: Capacity, seconds: float) -> None:
        """A task ran so long, and ended well."""
        of_kind = self._known.setdefault(kind, {})
        name = hardware_class(capacity)
        samples, mean = of_kind.get(name, (0, 0.0))
        weight = max(_WEIGHT, 1 / (samples + 1))
        of_kind[name] = samples + 1, mean + weight * (max(seconds, 1e-3) - mean)
        if len(self._known) > KINDS_MAX:
            del self._known[next(iter(self._known))]

    def samples(self, kind: str) -> Mapping[str, tuple[int, float]]:
        """By class of hardware, how many runs of this kind are known and how long they took."""
        return self._known.get(kind, {})

    def of(self, kind: str, classes: Iterable[str]) -> dict[str, float] | None:
        """The typical run time on each of these classes; None if any is not known well enough."""
        of_kind = self._known.get(kind)
        if of_kind is None:
            return None
        found: dict[str, float] = {}
        for name in classes:
            samples, mean = of_kind.get(name, (0, 0.0))
            if samples < SAMPLES_MIN:
                return None
            found[name] = mean
        return found

    def image(self) -> dict[str, dict[str, tuple[int, float]]]:
        return self._known

    def restore(self, image: Mapping[str, dict[str, tuple[int, float]]]) -> None:
        self._known = dict(image)
