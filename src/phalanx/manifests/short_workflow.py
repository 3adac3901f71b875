"""Which documents are workflow files in the short form: `name` and `stages` at the root, without a `spec`.

What the stages are is read by `stage_entries.py`, together with those of the other forms.
"""

from __future__ import annotations

from typing import Any

FLOWMESH = ("flowmesh/", "mloc")
VERSIONS = (*FLOWMESH, "phalanx/")
HEAD = ("apiVersion", "kind", "name")  # what is beside the stages and is not for them
NEEDS = ("needs", "dependsOn", "after")  # three words for one thing


def is_short(content: dict[str, Any]) -> bool:
    """Whether a document is a workflow in the short form."""
    version, kind = content.get("apiVersion"), content.get("kind")
    is_ours = version is None or (isinstance(version, str) and version.startswith(VERSIONS))
    is_workflow = kind is None or (isinstance(kind, str) and kind.lower() == "workflow")
    return "stages" in content and is_ours and is_workflow and not {"spec", "metadata"} & content.keys()
