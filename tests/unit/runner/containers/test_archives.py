"""Archives of images: their only name is ours."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from phalanx.runner.containers.archives import NoArchive, renamed


def archive(files: dict[str, bytes]) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return io.BytesIO(made.getvalue())


MANIFEST = json.dumps([{"Config": "c.json", "RepoTags": ["python:3.12"], "Layers": ["l.tar"]}]).encode()


def test_names_are_replaced_and_everything_else_is_kept():
    files = {
        "l.tar": b"x" * 3000,
        "repositories": b"{}",
        "manifest.json": MANIFEST,
        "index.json": b"{}",
        "c.json": b"{}",
    }
    counts: list[int] = []
    text = b"".join(renamed(archive(files), "localhost/ours:1", counts.append))
    with tarfile.open(fileobj=io.BytesIO(text)) as tar:
        assert sorted(tar.getnames()) == ["c.json", "l.tar", "manifest.json"]
        layer, manifest = tar.extractfile("l.tar"), tar.extractfile("manifest.json")
        assert layer is not None
        assert manifest is not None
        assert layer.read() == files["l.tar"]
        assert json.loads(manifest.read()) == [
            {"Config": "c.json", "RepoTags": ["localhost/ours:1"], "Layers": ["l.tar"]}
        ]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    "source",
    [
        io.BytesIO(b"no tar" * 200),
        archive({"a": b"b"}),
        archive({"manifest.json": b"[]"}),
        archive({"manifest.json": b"no json"}),
        archive({"manifest.json": json.dumps([{}, {}]).encode()}),
        io.BytesIO(archive({"manifest.json": MANIFEST, "l": b"x" * 9000}).getvalue()[:5000]),
    ],
)
def test_what_is_no_archive_of_one_image_is_refused(source: io.BytesIO):
    with pytest.raises(NoArchive):
        b"".join(renamed(source, "localhost/ours:1", lambda _: None))


@pytest.mark.parametrize(
    "name",
    ["././index.json", "/index.json", "x/../index.json", "x/layer.tar/../../index.json", "x/layer.tar/i"],
)
def test_no_path_stands_for_a_description_in_another_format(name: str):
    source = archive({name: b"{}", "manifest.json": MANIFEST})
    try:
        text = b"".join(renamed(source, "localhost/ours:1", lambda _: None))
    except NoArchive:
        return
    with tarfile.open(fileobj=io.BytesIO(text)) as tar:
        assert tar.getnames() == ["manifest.json"]


def test_headers_and_links_of_an_archive_are_not_passed_on():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        hidden = tarfile.TarInfo("foo")
        hidden.pax_headers = {"path": "index.json", "GNU.sparse.name": "foo"}
        folder, layer = tarfile.TarInfo("d"), tarfile.TarInfo("x/layer.tar")
        folder.type = layer.type = tarfile.SYMTYPE
        folder.linkname, layer.linkname = ".", "../l.tar"
        manifest = tarfile.TarInfo("././manifest.json")
        manifest.size = len(MANIFEST)
        for member in (hidden, folder, layer):
            tar.addfile(member)
        tar.addfile(manifest, io.BytesIO(MANIFEST))
    text = b"".join(renamed(io.BytesIO(made.getvalue()), "localhost/ours:1", lambda _: None))
    assert b"index.json" not in text
    with tarfile.open(fileobj=io.BytesIO(text)) as tar:
        assert tar.getnames() == ["foo", "x/layer.tar", "manifest.json"]
        content = tar.extractfile("manifest.json")
        assert content is not None
        assert json.loads(content.read())[0]["RepoTags"] == ["localhost/ours:1"]


class Zeros(io.RawIOBase):
    """A header of a terabyte, of which there is as much as is read."""

    def __init__(self) -> None:
        super().__init__()
        member = tarfile.TarInfo("x")
        member.type, member.size = tarfile.XHDTYPE, 1 << 40
        self._head = member.tobuf(tarfile.GNU_FORMAT)
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        piece, self._head = self._head[:size], self._head[size:]
        self.count += size
        assert self.count < 1 << 20
        return piece + bytes(size - len(piece))


def test_no_header_is_read_that_fills_the_memory():
    with pytest.raises(NoArchive):
        b"".join(renamed(Zeros(), "localhost/ours:1", lambda _: None))  # type: ignore[arg-type]


def test_what_is_nested_without_end_is_refused():
    with pytest.raises(NoArchive):
        b"".join(renamed(archive({"manifest.json": b"[" * 200_000}), "localhost/ours:1", lambda _: None))
    member = tarfile.TarInfo("x")
    member.type = tarfile.XHDTYPE
    source = io.BytesIO(member.tobuf(tarfile.GNU_FORMAT) * 5000)
    with pytest.raises(NoArchive):
        b"".join(renamed(source, "localhost/ours:1", lambda _: None))
