"""A node's labels in text form, `rack=r1;zone=a`: its location in the network, or its purpose."""

from __future__ import annotations

import re

LABELS_MAX = 64
# As Kubernetes spells them: a name, perhaps after a domain and a slash.
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:{_PART}/)?{_PART}")
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?|")


def parse_labels(text: str) -> dict[str, str]:
    """The labels this text describes, or ValueError with the part that is wrong and what would be right."""
    labels: dict[str, str] = {}
    for part in text.split(";") if text else ():
        key, equals, value = part.partition("=")
        if not equals or _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None:
            raise ValueError(
                f"label {part[:80]!r} is invalid: expected name=value, with ';' between several, such as"
                " rack=r1;zone=a or network.topology.nvidia.com/block=b1"
            )
        if key in labels or len(labels) == LABELS_MAX:
            raise ValueError(
                f"label {part[:80]!r} is one too many: each label once, and at most {LABELS_MAX}"
            )
        labels[key] = value
    return labels
