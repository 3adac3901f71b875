"""Names of products: what makers call their devices, and the short names by which people ask for them."""

from __future__ import annotations

import re

# Words in a product's name that do not tell one kind of device from another.
_SIZE_OR_FORM = re.compile(
    r"nvidia|tesla|geforce|graphics|generation|pcie|nvl|sxm[0-9]*|hbm[0-9]*[a-z]?|[0-9]+gb"
)


def device_kind(name: str) -> str:
    """The short name people ask for: `NVIDIA A100-SXM4-80GB` is an `a100`, `GeForce RTX 4090` an `rtx-4090`."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    kept = [word for word in words if _SIZE_OR_FORM.fullmatch(word) is None]
    return "-".join(kept or words)[:63].strip("-") or "gpu"
