"""What the tests of tokens do to a real cluster: change its files, ask it plainly, read its logs."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from tests.support.real_cluster import RealCluster


def put(path: Path, text: str) -> None:
    """Change a token file as an administrator would: at once, and for its owner alone."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


def answer(
    cluster: RealCluster, method: str, path: str, token: str, body: bytes = b"", at: str = "coordinator"
) -> int:
    """The status of one plain request."""
    request = urllib.request.Request(cluster.address(at) + path, method=method, data=body or None)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as answered:
            return int(answered.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def told(cluster: RealCluster, name: str) -> str:
    return (cluster.folder / f"{name}.log").read_text()
