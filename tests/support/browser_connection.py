"""A browser's side of a login, without a browser: cookies by host and port, the CSRF token, streams and terminals."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from phalanx.api.schema.session_frames import FrameKind

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """One page at one coordinator. `cookie` is what its browser keeps, `csrf` what the page holds in memory."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        self.at = urlsplit(address)
        self.tls = tls
        self.cookie = ""
        self.csrf = ""
        self.next_ticket = ""

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        """A request of the page: the cookie, the CSRF token, and JSON; `headers` replace or (if empty) remove."""
        words = {"sec-fetch-site": "same-origin"}
        if self.cookie:
            words["cookie"] = self.cookie
        if method != "GET":
            origin = f"{self.at.scheme}://{self.at.netloc}"
            words |= {"phalanx-csrf": self.csrf, "origin": origin, "content-type": "application/json"}
        words = {name: value for name, value in (words | (headers or {})).items() if value}
        connection = self._connection()
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, words)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, told, answer.read())
        finally:
            connection.close()

    def log_in(self, ticket: str) -> Reply:
        reply = self.ask("POST", "/v1/logins", {"ticket": ticket}, {"cookie": "", "phalanx-csrf": ""})
        if reply.status == 201:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
            self.csrf, self.next_ticket = reply.json()["csrf"], reply.json()["next_ticket"]
        return reply

    def first_change(self, after: int) -> dict[str, Any]:
        """The first message of the stream of changes."""
        connection = self._connection()
        try:
            connection.request("GET", f"/v1/pages/changes?after={after}", headers={"cookie": self.cookie})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            while True:
                line = answer.fp.readline()
                if line.startswith(b"data: "):
                    found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                    return found
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self.at.hostname or "", self.at.port
        if self.tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=20, context=self.tls)
        return http.client.HTTPConnection(host, port, timeout=20)

    def terminal(self, session: str, ticket: str, origin: str | None = None) -> Terminal:
        return Terminal(self, session, ticket, origin)


class Terminal:
    """A WebSocket of a page. The ticket is its first message."""

    def __init__(self, page: Browser, session: str, ticket: str, origin: str | None = None) -> None:
        at = page.at
        self._socket = socket.create_connection((at.hostname, at.port), timeout=20)
        if page.tls is not None:
            self._socket = page.tls.wrap_socket(self._socket, server_hostname=at.hostname)
        lines = [
            f"GET /v1/sessions/{session} HTTP/1.1",
            f"Host: {at.netloc}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Origin: {f'{at.scheme}://{at.netloc}' if origin is None else origin}",
            f"Cookie: {page.cookie}",
            "Sec-Fetch-Site: same-origin",
            f"Sec-WebSocket-Key: {KEY}",
            "Sec-WebSocket-Version: 13",
        ]
        self._socket.sendall(
            "\r\n".join([line for line in lines if not line.endswith(": ")]).encode() + b"\r\n\r\n"
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = self._socket.recv(1)
            if not piece:
                break
            head += piece
        self.status = int(head.split(b" ")[1]) if head else 0
        self._protocol = Protocol(Side.CLIENT, state=State.OPEN)
        if self.status == 101:
            self._protocol.send_text(ticket.encode())
            self._flush()
        else:
            self.close()

    def send(self, kind: FrameKind, content: bytes = b"") -> None:
        self._protocol.send_binary(bytes([kind]) + content)
        self._flush()

    def frames(self) -> list[tuple[FrameKind, bytes]]:
        """All frames until the session ends."""
        found: list[tuple[FrameKind, bytes]] = []
        while True:
            for event in self._protocol.events_received():
                assert isinstance(event, Frame)
                if event.opcode is Opcode.BINARY:
                    data = bytes(event.data)
                    found.append((FrameKind(data[0]), data[1:]))
            if found and found[-1][0] in (FrameKind.EXIT, FrameKind.ERROR):
                self.close()
                return found
            data = self._socket.recv(65536)
            if not data:
                return found
            self._protocol.receive_data(data)
            self._flush()

    def close(self) -> None:
        self._socket.close()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)
