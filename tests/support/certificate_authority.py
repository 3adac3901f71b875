"""Certificates for tests: an authority of the test's own, made in milliseconds."""

from __future__ import annotations

from pathlib import Path

from phalanx.certificates import issue, make_authority
from phalanx.tls import TlsFiles


class Authority:
    """One authority in a folder."""

    def __init__(self, folder: Path, title: str = "test") -> None:
        self.folder = folder
        make_authority(folder, title)

    def coordinator(self, name: str = "c1", *hosts: str, days: int = 90) -> TlsFiles:
        return self._issue("coordinator", name, list(hosts) or ["127.0.0.1", "127.0.0.2", "localhost"], days)

    def node(self, name: str, days: int = 90) -> TlsFiles:
        return self._issue("node", name, [], days)

    def client(self, name: str = "alice") -> TlsFiles:
        return self._issue("client", name, [], 90)

    @property
    def alone(self) -> TlsFiles:
        """What somebody needs who shows no certificate of their own."""
        return TlsFiles(self.folder / "ca.crt")

    def _issue(self, kind: str, name: str, hosts: list[str], days: int) -> TlsFiles:
        out = self.folder / f"{kind}s" / name
        issue(self.folder, kind, name, hosts, out, days, renew=True)  # type: ignore[arg-type]
        return TlsFiles(out / "ca.crt", out / "tls.crt", out / "tls.key")
