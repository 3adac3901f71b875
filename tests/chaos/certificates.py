"""Certificates for a cluster whose addresses are not loopback, made as `phalanx ca` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from phalanx.certificates import issue, make_authority
from phalanx.tls import Papers

_DAYS = 2


class Authority:
    """One authority, and what it issues: settings that name the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_authority(folder, "chaos", _DAYS)

    @property
    def papers(self) -> Papers:
        """What a client needs."""
        return Papers(self._folder / "ca.crt")

    def coordinator(self, name: str, host: str) -> dict[str, object]:
        return self._issued("coordinator", name, [host])

    def node(self, name: str) -> dict[str, object]:
        return self._issued("node", name, [])

    def _issued(self, kind: Literal["coordinator", "node"], name: str, hosts: list[str]) -> dict[str, object]:
        target = self._folder / name
        issue(self._folder, kind, name, hosts, target, _DAYS, renew=False)
        return {
            "TLS_CA_FILE": target / "ca.crt",
            "TLS_CERT_FILE": target / "tls.crt",
            "TLS_KEY_FILE": target / "tls.key",
        }
