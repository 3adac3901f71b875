"""Members of a gang: their order, which are alike, and how many of each shape are needed."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from phalanx.manifests.pods import Pod
from phalanx.manifests.view import View

_NUMBER = re.compile(r"([0-9]{1,18})", re.ASCII)


def in_order(pods: list[Pod]) -> list[Pod]:
    """By index, then by name, with the numbers in names as numbers; members without an index come last."""
    return sorted(pods, key=lambda pod: (pod.index is None, pod.index or 0, _by_number(pod.name)))


def by_shape(pods: list[Pod]) -> list[list[Pod]]:
    """Members with the same request and command, in the order in which each shape first appears.

    In a plan they also have the same tolerations, which decide what nodes they may use.
    """
    shapes: dict[bytes, list[Pod]] = {}
    for pod in pods:
        options = pod.template
        tolerated = options.tolerations if options.view.source.for_plan else ()
        shapes.setdefault(msgspec.msgpack.encode((options.group, tolerated)), []).append(pod)
    return list(shapes.values())


def needed_of_each(minimum: int, pods: list[Pod], shapes: list[list[Pod]], view: View) -> list[int]:
    """How many of each shape a gang needs to start, if it needs `minimum` of all its members in order."""
    sizes = [len(shape) for shape in shapes]
    shape_of = {id(pod): number for number, shape in enumerate(shapes) for pod in shape}
    return share_out(minimum, [shape_of[id(pod)] for pod in pods], sizes, view)


def share_out(minimum: int, order: list[int], sizes: list[int], view: View) -> list[int]:
    """The first `minimum` members in order are needed; `order` has the shape of each member."""
    if minimum >= len(order):
        return sizes
    counted = Counter(order[:minimum])
    needs = [counted[number] for number in range(len(sizes))]
    if len(sizes) > 1:
        shares = ", ".join(f"{need} of {size}" for need, size in zip(needs, sizes, strict=True))
        view.note(
            "",
            f"its members are not alike, so which of them are needed is fixed: of its {len(order)}, {minimum} are"
            f" enough, by kind {shares}",
        )
    return needs


def indexes(shape: list[Pod], view: View) -> list[int]:
    """The network index of each member; empty where it equals the position, or where no member has one."""
    indexes_given = [pod.index for pod in shape]
    if all(index is None for index in indexes_given) or indexes_given == list(range(len(indexes_given))):
        return []
    given = [index for index in indexes_given if index is not None]
    if len(set(given)) < len(given):
        twice = Counter(given).most_common(1)[0][0]
        view.refuse("", f"two members have the network-topology-index {twice}", "taken by name")
        return []
    if len(given) < len(indexes_given):
        view.note("", "some members have no network-topology-index; they come last, by name")
    after = max(given) + 1
    return given + list(range(after, after + len(indexes_given) - len(given)))


def _by_number(name: str) -> list[tuple[int, str]]:
    """Text and numbers in turn, so that pod-2 comes before pod-10."""
    parts = _NUMBER.split(name)
    return [(int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)]
