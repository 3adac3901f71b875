"""The dashboard's files under `/ui/`: what was built, from memory, with the headers that let a page run nothing else.

What may be asked for is a list that is made once, so no path leads anywhere else. A path without a file's ending is a
place within the page, which is `index.html`. The files hold nothing of the cluster, so no login is asked for them.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path

from phalanx.api.server.messages import Header, Response
from phalanx.errors import WrongMethod

ROOT = "/ui/"
INDEX = "index.html"
FILES_MAX, BYTES_MAX = 2000, 64 << 20
COMPRESSED_FROM = 1024  # bytes; smaller files are sent as they are
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_PACKED = (".woff2", ".png", ".ico")
# Styles may be inline: the terminal and the charts set them, and under this policy no style can load from elsewhere.
# Of other hosts a page may ask whether a coordinator lives there, before it moves to it (decision 153).
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self' http://*:*/livez https://*:*/livez; worker-src 'self'; object-src 'none'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Phalanx</title>
<h1>The dashboard was not built</h1>
<p>This installation of Phalanx has no built dashboard in <code>phalanx/dashboard/static</code>.
In a checkout, run <code>make ui</code> and open this page again. Wheels bring it along.</p>
<p><code>phalanx top</code> shows the cluster in a terminal.</p></html>
"""


class StaticFile:
    """One file, and its compressed forms: those that were built beside it, or one made when it is first asked for."""

    def __init__(self, name: str, body: bytes, packed: dict[str, bytes]) -> None:
        self.media = MEDIA[Path(name).suffix]
        self._bodies = {"": body} | packed
        self._tag = hashlib.sha256(body).hexdigest()[:32]
        self._may_pack = not packed and len(body) >= COMPRESSED_FROM and Path(name).suffix not in _PACKED
        is_hashed = name.startswith("assets/")  # the build names those after their content
        self._cached = b"public, max-age=31536000, immutable" if is_hashed else b"no-cache"

    def reply(self, headers: Mapping[bytes, bytes]) -> Response:
        encoding = self._encoding(headers.get(b"accept-encoding", b"").decode("latin-1"))
        tag = f'"{self._tag}{f"-{encoding}" if encoding else ""}"'.encode()
        told: tuple[Header, ...] = (
            *HEADERS,
            (b"etag", tag),
            (b"cache-control", self._cached),
            (b"vary", b"accept-encoding"),
        )
        if tag in [each.strip() for each in headers.get(b"if-none-match", b"").split(b",")]:
            return Response(304, told, b"")
        told += ((b"content-type", self.media.encode()),)
        if encoding:
            told += ((b"content-encoding", encoding.encode()),)
        return Response(200, told, self._bodies[encoding])

    def _encoding(self, accepted: str) -> str:
        offered = {
            each.partition(";")[0].strip()
            for each in accepted.split(",")
            if each.partition(";")[2].replace(" ", "") != "q=0"
        }
        if self._may_pack and "gzip" in offered:
            self._may_pack = False
            self._bodies["gzip"] = gzip.compress(self._bodies[""], 6, mtime=0)
        return next((name for name, _ in _ENCODINGS if name in offered and name in self._bodies), "")


class StaticFiles:
    """The built dashboard, if there is one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, StaticFile] = {}

    def reply(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> Response:
        """The answer to a request below `/ui/`."""
        if method not in ("GET", "HEAD"):
            raise WrongMethod(
                f"{method[:20]} is not possible here, only GET, HEAD", extra={"allow": "GET, HEAD"}
            )
        if path in ("/", "/ui"):
            return Response(307, (*HEADERS, (b"location", ROOT.encode())), b"")
        if not self._files:
            self._files = read_folder(self._folder)
        if INDEX not in self._files:
            return Response(503, (*HEADERS, (b"content-type", MEDIA[".html"].encode())), MISSING)
        name = path.removeprefix(ROOT)
        found = self._files.get(name)
        is_place = Path(name).suffix not in MEDIA and not name.startswith("assets/")  # it may be task 17.3
        if found is None and is_place:
            found = self._files[INDEX]
        if found is None:
            return Response(
                404, (*HEADERS, (b"content-type", MEDIA[".txt"].encode())), b"there is no such file\n"
            )
        return found.reply(headers)


def is_static(path: str) -> bool:
    return path in ("/", "/ui") or path.startswith(ROOT)


def read_folder(folder: Path) -> dict[str, StaticFile]:
    """The files of a build by their paths; nothing unless `index.html` is among them."""
    if not (folder / INDEX).is_file():
        return {}
    found: dict[str, StaticFile] = {}
    left = BYTES_MAX
    for path in sorted(folder.rglob("*")):
        if path.suffix not in MEDIA or path.is_symlink() or not path.is_file() or len(found) >= FILES_MAX:
            continue
        packed = {
            encoding: beside.read_bytes()
            for encoding, ending in _ENCODINGS
            if (beside := path.with_name(path.name + ending)).is_file() and not beside.is_symlink()
        }
        body = path.read_bytes()
        left -= len(body) + sum(map(len, packed.values()))
        if left < 0:
            break
        name = path.relative_to(folder).as_posix()
        found[name] = StaticFile(name, body, packed)
    return found
