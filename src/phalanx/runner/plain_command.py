"""Whether a command is one Python process, which starts no others in the way that torchrun does."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
# Packages whose modules, run with -m, start a process for each device and number the processes themselves.
_LAUNCHERS = frozenset(
    {"torch", "torchrun", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "lightning_fabric", "composer"}
    | {"colossalai", "horovod", "ray", "axolotl", "llamafactory", "paddle", "mpi4py"}
)  # fmt: skip
_WITH_VALUE = ("-W", "-X")  # options of Python that take the next word


def is_plain_python(argv: Sequence[str]) -> bool:
    """Whether it runs a script, a text or a module that is no launcher with Python itself: `python ddp.py`."""
    if not argv or not _PYTHON.fullmatch(argv[0]):
        return False
    words = iter(argv[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word == "-m":
            return next(words, "torch").split(".")[0] not in _LAUNCHERS
        elif word.startswith("-m"):
            return word[2:].split(".")[0] not in _LAUNCHERS
        elif word.startswith("-c") or not word.startswith("-"):
            return not word.endswith(("/torchrun", "/accelerate", "/deepspeed"))
    return False
