"""The files of the dashboard: what is served, with which headers, and that nothing else is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens
from phalanx.api.server.messages import App
from phalanx.api.server.page_access import PageAccess
from phalanx.api.server.static_files import POLICY, StaticFiles
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import RawResponse, ask

pytestmark = pytest.mark.anyio
SCRIPT = b"let x = 1;\n" * 500


def a_build(folder: Path) -> Path:
    static = folder / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_bytes(b"<!doctype html><title>Phalanx</title>")
    (static / "assets" / "app-1a2b.js").write_bytes(SCRIPT)
    (static / "assets" / "app-1a2b.css").write_bytes(b"a{}")
    (static / "assets" / "app-1a2b.css.br").write_bytes(b"packed")
    (static / "notes.py").write_bytes(b"secret")
    (folder / "secret.txt").write_bytes(b"secret")
    (static / "link.txt").symlink_to(folder / "secret.txt")
    return static


def an_app(static: Path) -> App:
    return build_app(FakeCommands(), Tokens([]), page=PageAccess(static=StaticFiles(static)))


async def get(app: App, path: str, method: str = "GET", **headers: str) -> RawResponse:
    words = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(app, method, path, headers={"authorization": ""} | words)


async def test_the_page_needs_no_token_and_runs_nothing_else(tmp_path: Path):
    answered = await get(an_app(a_build(tmp_path)), "/ui/")
    assert answered.status == 200
    assert answered.body.startswith(b"<!doctype html>")
    assert answered.headers["content-security-policy"] == POLICY
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert answered.headers["referrer-policy"] == "no-referrer"
    assert answered.headers["cache-control"] == "no-cache"
    words = dict(each.strip().partition(" ")[::2] for each in POLICY.split(";"))
    assert words["script-src"] == words["default-src"] == "'self'"
    assert words["connect-src"] == "'self' http://*:*/livez https://*:*/livez"
    assert words["frame-ancestors"] == words["object-src"] == words["base-uri"] == "'none'"


async def test_the_root_leads_to_the_page(tmp_path: Path):
    app = an_app(a_build(tmp_path))
    for path in ("/", "/ui"):
        answered = await get(app, path)
        assert (answered.status, answered.headers["location"]) == (307, "/ui/")


async def test_a_place_within_the_page_is_the_page(tmp_path: Path):
    app = an_app(a_build(tmp_path))
    for path in ("/ui/jobs/17", "/ui/nodes", "/ui/a/b/c/d"):
        assert (await get(app, path)).body.startswith(b"<!doctype html>")
    assert (await get(app, "/ui/assets/gone-1.js")).status == 404


async def test_files_named_by_their_content_are_kept_for_ever(tmp_path: Path):
    app = an_app(a_build(tmp_path))
    answered = await get(app, "/ui/assets/app-1a2b.js")
    assert answered.body == SCRIPT
    assert "immutable" in answered.headers["cache-control"]
    assert answered.headers["content-type"].startswith("text/javascript")
    packed = await get(app, "/ui/assets/app-1a2b.js", accept_encoding="gzip, deflate")
    assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", SCRIPT)
    assert packed.headers["etag"] != answered.headers["etag"]
    beside = await get(app, "/ui/assets/app-1a2b.css", accept_encoding="br;q=1.0, gzip")
    assert (beside.headers["content-encoding"], beside.body) == ("br", b"packed")
    plain = await get(app, "/ui/assets/app-1a2b.css", accept_encoding="br;q=0")
    assert "content-encoding" not in plain.headers


async def test_what_a_browser_has_is_not_sent_again(tmp_path: Path):
    app = an_app(a_build(tmp_path))
    tag = (await get(app, "/ui/")).headers["etag"]
    answered = await get(app, "/ui/", if_none_match=tag)
    assert (answered.status, answered.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../secret.txt",
        "/ui/../../etc/passwd.txt",
        "/ui/%2e%2e/secret.txt",
        "/ui//etc/passwd.txt",
        "/ui/assets/../../secret.txt",
        "/ui/..\\secret.txt",
        "/ui/link.txt",
        "/ui/assets/app-1a2b.css.br",
        "/ui/\0.txt",
        "/ui/" + "a/" * 5000 + "x.js",
    ],
)
async def test_no_path_leads_elsewhere(tmp_path: Path, path: str):
    answered = await get(an_app(a_build(tmp_path)), path)
    assert answered.status == 404
    assert b"secret" not in answered.body


async def test_only_reading_is_possible(tmp_path: Path):
    app = an_app(a_build(tmp_path))
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert (await get(app, "/ui/", method)).status == 405
    assert (await get(app, "/ui/", "HEAD")).status == 200


async def test_host_and_origin_are_looked_at_here_too(tmp_path: Path):
    app = an_app(a_build(tmp_path))
    assert (await get(app, "/ui/", host="evil.example")).status == 403
    assert (await get(app, "/ui/", origin="http://evil.example")).status == 403


async def test_where_nothing_was_built_the_page_says_so(tmp_path: Path):
    app = an_app(tmp_path / "static")
    answered = await get(app, "/ui/jobs")
    assert answered.status == 503
    assert b"make ui" in answered.body
    a_build(tmp_path)
    assert (await get(app, "/ui/")).status == 200
