"""How long work of one kind took on each class of hardware, so that choices and estimates rest on it.

A kind is a task type with the models that are loaded, for choices, or a stage by its name and that of its workflow, for
estimates; both of one user. A choice asks for enough samples on every class of node that comes into question: numbers
that are known for some of them and guessed for others could not be compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from phalanx.core.model.dispatch import Dispatch
from phalanx.core.model.resources import Capacity

SAMPLES_MIN = 5  # so many ends on one class of hardware, before they count
KINDS_MAX = 10_000  # what is known of; then whoever has most forgets what was learned longest ago
KIND_CHARS_MAX = 256
_WEIGHT = 0.2  # of the newest run
_SEPARATOR = "\x1f"


def hardware_class(capacity: Capacity) -> str:
    """Nodes with the same devices and as many cores are of one class."""
    kinds = sorted(device.kind for device in capacity.devices)
    return f"{capacity.cores:g}c {' '.join(kinds)}".rstrip()


class WorkKind(NamedTuple):
    """What is alike in the work of one user: what others run under the same names says nothing about it."""

    user: str
    name: str


def work_kind(user: str, asked: Dispatch) -> WorkKind:
    """Tasks of one type that load the same are of one kind."""
    name = _SEPARATOR.join((asked.task_type, *asked.context))
    if len(name) > KIND_CHARS_MAX:
        name = hashlib.sha256(name.encode()).hexdigest()
    return WorkKind(user, name)


def stage_kind(user: str, workflow: str, stage: str) -> WorkKind:
    """Stages of one name, of workflows of one name, are of one kind."""
    return WorkKind(user, _SEPARATOR.join((workflow, stage)))


class RunTimes:
    """Means that forget, by kind of work and class of hardware."""

    def __init__(self) -> None:
        # By user and name; number of samples and mean, in seconds. What was learned last stands last.
        self._known: dict[str, dict[str, dict[str, tuple[int, float]]]] = {}
        self._count = 0

    def learn(self, kind: WorkKind, capacity: Capacity, seconds: float) -> None:
        """A task ran so long, and ended well."""
        own = self._known.setdefault(kind.user, {})
        of_kind = own.pop(kind.name, None)
        if of_kind is None:
            of_kind = {}
            self._count += 1
        own[kind.name] = of_kind
        name = hardware_class(capacity)
        samples, mean = of_kind.get(name, (0, 0.0))
        weight = max(_WEIGHT, 1 / (samples + 1))
        of_kind[name] = samples + 1, mean + weight * (max(seconds, 1e-3) - mean)
        if self._count > KINDS_MAX:
            self._forget_one()

    def _forget_one(self) -> None:
        most = max(self._known.values(), key=len)
        del most[next(iter(most))]
        self._count -= 1

    def samples(self, kind: WorkKind) -> Mapping[str, tuple[int, float]]:
        """By class of hardware, how many runs of this kind are known and how long they took."""
        return self._known.get(kind.user, {}).get(kind.name, {})

    def of(self, kind: WorkKind, classes: Iterable[str]) -> dict[str, float] | None:
        """The typical run time on each of these classes; None if any is not known well enough."""
        of_kind, found = self.samples(kind), dict[str, float]()
        for name in classes:
            samples, mean = of_kind.get(name, (0, 0.0))
            if samples < SAMPLES_MIN:
                return None
            found[name] = mean
        return found

    def image(self) -> dict[str, dict[str, tuple[int, float]]]:
        """By user and name in one text."""
        return {
            f"{user}{_SEPARATOR}{name}": of_kind
            for user, own in self._known.items()
            for name, of_kind in own.items()
        }

    def restore(self, image: Mapping[str, dict[str, tuple[int, float]]]) -> None:
        self._known, self._count = {}, len(image)
        for text, of_kind in image.items():
            user, _, name = text.partition(_SEPARATOR)
            self._known.setdefault(user, {})[name] = dict(of_kind)
