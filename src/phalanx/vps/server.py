"""The SSH server of a VPS: keys alone open it; shells, commands, files and forwarded ports are the VPS's own.

The protocol is asyncssh's. The user name plays no part: a client with the key gets the account of the VPS. Shells and
commands are in `shell.py`; files (SFTP, and scp of older clients) are served by this process, which has the same
rights.
"""

from __future__ import annotations

from functools import partial

import asyncssh

from phalanx.runner.vps_options import ServerOptions
from phalanx.vps.log import say
from phalanx.vps.shell import serve_process

CONNECTIONS_MAX = 128  # at one time; more are closed at once
LOGIN_WITHIN_S = 30
KEEPALIVE_S = 30
BACKLOG = 64


class VpsServer(asyncssh.SSHServer):
    """One connection of a client."""

    _open = 0

    def __init__(self) -> None:
        self._peer = ""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        VpsServer._open += 1
        peer = conn.get_extra_info("peername") or ("", 0)
        self._peer = f"{peer[0]}:{peer[1]}"
        if VpsServer._open > CONNECTIONS_MAX:
            say(f"{self._peer} refused: {CONNECTIONS_MAX} connections are open")
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        VpsServer._open -= 1
        say(f"{self._peer} closed{f': {exc}' if exc else ''}")

    def begin_auth(self, username: str) -> bool:
        return True  # everybody has to show a key

    def auth_completed(self) -> None:
        say(f"{self._peer} logged in")

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True  # from here, so that the network and the firewall of the VPS apply

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return True

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True

    def unix_server_requested(self, listen_path: str) -> bool:
        return True


class VpsFiles(asyncssh.SFTPServer):
    """Files over SFTP."""

    def exit(self) -> None:
        """Its end has an exit code, which scp of OpenSSH takes for its own."""
        self.channel.exit(0)


async def listen(options: ServerOptions, address: str, env: dict[str, str]) -> asyncssh.SSHAcceptor:
    """Serve at one address, with this environment for what is started; raises OSError where that is not possible."""
    return await asyncssh.listen(
        address,
        options.port,
        server_factory=VpsServer,
        server_host_keys=[asyncssh.import_private_key(options.host_key)],
        authorized_client_keys=asyncssh.import_authorized_keys("\n".join(options.keys) + "\n"),
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        process_factory=partial(serve_process, env),
        sftp_factory=VpsFiles,
        allow_scp=True,
        line_editor=False,
        encoding=None,
        login_timeout=LOGIN_WITHIN_S,
        keepalive_interval=KEEPALIVE_S,
        server_version="Phalanx_VPS",
        backlog=BACKLOG,
        reuse_address=True,
        config=None,
    )
