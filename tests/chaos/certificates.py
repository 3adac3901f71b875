"""Certificates for a cluster whose addresses are not loopback, made as `phalanx ca` makes them.

They are two days old: a node whose clock is set back by hours must not find that they are not valid yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from phalanx.certificates import issue, make_authority
from phalanx.tls import TlsFiles

_DAYS = 60  # so that there is no warning of their end
_AGE = timedelta(days=2)


class Authority:
    """One authority, and the certificates it issues: settings that name the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with _two_days_ago():
            make_authority(folder, "chaos", _DAYS)

    @property
    def tls_files(self) -> TlsFiles:
        """What a client needs."""
        return TlsFiles(self._folder / "ca.crt")

    def coordinator(self, name: str, host: str) -> dict[str, object]:
        return self._issued("coordinator", name, [host])

    def node(self, name: str) -> dict[str, object]:
        return self._issued("node", name, [])

    def _issued(self, kind: Literal["coordinator", "node"], name: str, hosts: list[str]) -> dict[str, object]:
        target = self._folder / name
        with _two_days_ago():
            issue(self._folder, kind, name, hosts, target, _DAYS, renew=False)
        return {
            "TLS_CA_FILE": target / "ca.crt",
            "TLS_CERT_FILE": target / "tls.crt",
            "TLS_KEY_FILE": target / "tls.key",
        }


@contextmanager
def _two_days_ago() -> Iterator[None]:
    with patch("phalanx.certificates._now", lambda: datetime.now(UTC) - _AGE):
        yield
