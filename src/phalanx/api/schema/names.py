"""What is told of a name that Kubernetes gave: which job or task has it here."""

from __future__ import annotations

from msgspec import Struct


class NamedView(Struct):
    """Which job or task Kubernetes calls `name`, its namespace/name; a task has a dot and its index in its id."""

    name: str
    id: str
