"""A jitter that breaks ties between nodes: it follows from the ids of task and node, so every coordinator has the same.

The formula is FlowMesh's. Every choice between equal nodes hashes all of them, so this is most of what a choice costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import numpy as np

from phalanx.core.model.proxies import Numbers

try:  # Python's own MD5: for texts as short as these it takes half the time of OpenSSL's
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    md5 = partial(hashlib.md5, usedforsecurity=False)

_SCALE = 2.0**64


def jitter(task: str, node: str, most: float) -> float:
    """Between −most and +most, the same for the same task and node in every process."""
    return float(jitters(task, [node.encode()], most)[0])


def jitters(task: str, nodes: Sequence[bytes], most: float) -> Numbers:
    """The jitter of one task for each of these nodes, whose names are encoded."""
    if most <= 0:
        return np.zeros(len(nodes))
    prefix = f"{task}:".encode()
    digests = [md5(prefix + node).digest() for node in nodes]
    numbers = np.frombuffer(b"".join(digests), dtype=">u8")[::2].astype(np.float64)  # the first half of each
    found: Numbers = (numbers / _SCALE - 0.5) * (2 * most)
    return found
