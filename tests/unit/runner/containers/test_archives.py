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
