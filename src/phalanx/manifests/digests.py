"""Kubernetes objects by kind, namespace and name, and digests that show whether one has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from phalanx.core.model.job import is_object
from phalanx.manifests.load import Map

DIGEST_BYTES = 8
_KINDS = {kind.lower(): kind for kind in ("Pod", "PodGroup", "Job", "JobSet")}


def digests(documents: Iterable[Map]) -> dict[str, str]:
    """The objects that jobs are made of, such as `Pod default/a`; only the kind for an object with generateName."""
    found: dict[str, str] = {}
    for document in documents:
        kind = _KINDS.get(str(document.get("kind")).lower())
        if kind is not None:
            name = _name(document)
            found[f"{kind} {name}" if is_object(name) else kind] = _digest(document)
    return found


def _name(document: Map) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return ""
    return f"{metadata.get('namespace') or 'default'}/{metadata['name']}"


def _digest(document: Map) -> str:
    """The same digest for the same content, in whatever order its fields are written; the status is left out."""
    content = {key: value for key, value in document.items() if key != "status"}
    text = msgspec.json.encode(content, order="sorted")
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).hexdigest()
