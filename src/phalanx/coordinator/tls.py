"""A coordinator's certificate at work: the contexts of its two ports, the hosts it answers to, and renewal.

Files that were replaced are taken up within `auth_reload_interval_s`. New ones that cannot be used are told, and
the old ones stay in use until they are mended.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from phalanx.errors import ConfigError
from phalanx.logger import logger
from phalanx.settings import CoordinatorSettings as Section
from phalanx.tls import Pem, ServerTls, TlsFiles
from phalanx.tokenfile import is_open_to_others

log = logger("coordinator")
WARN_DAYS = 14


class TlsPorts:
    """What follows from the TLS settings of a coordinator; without any, ports speak plainly."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self._tls: ServerTls | None = None
        if section.tls_cert_file is not None:
            self._tls = ServerTls(TlsFiles(section.tls_ca_file, section.tls_cert_file, section.tls_key_file))
            self._warn()

    @property
    def rest(self) -> Callable[[], ssl.SSLContext] | None:
        tls = self._tls
        return None if tls is None else lambda: tls.rest

    @property
    def link(self) -> Callable[[], ssl.SSLContext] | None:
        tls = self._tls
        return None if tls is None else lambda: tls.link

    @property
    def pem(self) -> Callable[[], Pem] | None:
        """The files' content, for gRPC."""
        tls = self._tls
        return None if tls is None else lambda: tls.pem

    def hosts(self) -> tuple[str, ...]:
        """Values of the Host header to accept: those that were named, where we are reached, what TLS proves."""
        section = self._section
        advertised = urlsplit(section.advertise).hostname if section.advertise else None
        named = (*section.hosts, *([advertised] if advertised else []))
        if section.tls_cert_file is None:
            return named
        from phalanx.certificates import hosts_in  # here, so that a coordinator without TLS starts sooner

        return (*named, *hosts_in(section.tls_cert_file))

    async def keep(self) -> None:
        """Read the files again, for the life of the process."""
        while True:
            await asyncio.sleep(self._section.auth_reload_interval_s)
            self.reload()

    def reload(self) -> None:
        try:
            if self._tls is not None and self._tls.reload():
                log.info("certificate reloaded", file=str(self._section.tls_cert_file))
                self._warn()
        except ConfigError as error:
            log.warning("the new certificate is invalid, the old one stays in use", error=error.detail)

    def _warn(self) -> None:
        """Log what would keep clients out or let strangers in, before the first client calls."""
        section = self._section
        if section.tls_cert_file is None:
            return
        from phalanx.certificates import show

        shown = show(section.tls_cert_file)
        if shown.days_left < 0:
            log.error("the certificate has expired, clients will reject it", until=shown.valid_until)
        elif shown.days_left < WARN_DAYS:
            log.warning("the certificate expires soon", until=shown.valid_until, days_left=shown.days_left)
        if shown.kind in ("node", "client", "authority"):
            log.error("this is not a coordinator's certificate, clients will reject it", kind=shown.kind)
        reached = urlsplit(section.advertise).hostname if section.advertise else section.bind
        if reached not in (*shown.hosts, "0.0.0.0", "::"):  # noqa: S104 - which is no name to be good for
            log.warning(
                "the certificate is not good for where we are reached", host=reached, for_=shown.hosts
            )
        key = section.tls_key_file
        if key is not None and is_open_to_others(key, key.stat()):
            log.warning("the certificate's private key is readable by others", hint=f"chmod 600 {key}")
