"""A registry of images on loopback: it serves the distribution protocol over plain HTTP, from memory.

One layer can be made to come slowly, or to stop in the middle until it is told to go on.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
PIECE = 64 << 10

UNKNOWN = (
    b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'  # as the OCI specifies it
)


class Registry:
    """Images by name, and how their layers are sent."""

    def __init__(self) -> None:
        self.blobs: dict[str, tuple[str, bytes]] = {}
        self.manifests: dict[str, str] = {}  # name:tag → digest
        self.may_go_on = threading.Event()  # half of a layer is sent before this is asked for
        self.may_go_on.set()
        self.asked: list[str] = []
        self.hung_up = 0  # how often a client left in the middle of a layer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def add(self, name: str, root: Path) -> str:
        """An image of one layer with the content of a folder; its whole name."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as archive:
            archive.add(root, arcname=".")
            archive.addfile(
                tarfile.TarInfo(f"./{name}")
            )  # or a runtime would have the layer of another image
        layer = gzip.compress(plain.getvalue(), compresslevel=1, mtime=0)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(plain.getvalue())]},
        }
        parts = [(CONFIG, json.dumps(config).encode()), (LAYER, layer)]
        described = [
            {"mediaType": kind, "size": len(content), "digest": self._keep(kind, content)}
            for kind, content in parts
        ]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described[0],
            "layers": described[1:],
        }
        self.manifests[f"{name}:latest"] = self._keep(MANIFEST, json.dumps(manifest).encode())
        return f"{self.host}/{name}"

    def close(self) -> None:
        self.may_go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def _keep(self, kind: str, content: bytes) -> str:
        self.blobs[digest(content)] = kind, content
        return digest(content)

    def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler's self is another
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, with_body: bool) -> None:
                registry.asked.append(self.path)
                found = registry.find(self.path)
                if found is None:
                    self._head(404, "application/json", UNKNOWN)
                    if with_body:
                        self.wfile.write(UNKNOWN)
                    return
                kind, content = found
                self._head(200, kind, content)
                if with_body:
                    self._send(kind, content)

            def _head(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Docker-Content-Digest", digest(content))
                self.end_headers()

            def _send(self, kind: str, content: bytes) -> None:
                half = len(content) // 2 if kind == LAYER else len(content)
                try:
                    self.wfile.write(content[:half])
                    if kind == LAYER:
                        registry.may_go_on.wait(60.0)
                        self.wfile.write(content[half:])
                except OSError:
                    registry.hung_up += 1
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                return

        return Handler

    def find(self, path: str) -> tuple[str, bytes] | None:
        """What is served at a path."""
        if path == "/v2/":
            return "application/json", b"{}"
        name, _, rest = path.removeprefix("/v2/").partition("/manifests/")
        if rest:
            return self.blobs.get(
                rest if rest.startswith("sha256:") else self.manifests.get(f"{name}:{rest}", "")
            )
        return self.blobs.get(path.rpartition("/")[2])


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def a_registry() -> Iterator[Registry]:
    registry = Registry()
    try:
        yield registry
    finally:
        registry.close()
