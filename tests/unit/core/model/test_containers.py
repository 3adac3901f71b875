"""Images and mounts as people write them."""

from __future__ import annotations

import pytest

from phalanx.core.model.containers import (
    CONTAINERS,
    MOUNTS,
    ROOTFS,
    ContainerImage,
    Mount,
    parse_image,
    parse_mount,
    required_labels,
)


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("python:3.12", "registry", "python:3.12"),
        ("127.0.0.1:5000/team/image", "registry", "127.0.0.1:5000/team/image"),
        ("docker.io/library/a@sha256:" + 64 * "0", "registry", "docker.io/library/a@sha256:" + 64 * "0"),
        ("/images/a.tar", "archive", "/images/a.tar"),
        ("docker-archive:/images//a.tar", "archive", "/images/a.tar"),
        ("rootfs:/srv/./root/", "rootfs", "/srv/root"),
    ],
)
def test_an_image_is_a_name_an_archive_or_a_folder(text: str, kind: str, place: str):
    assert parse_image(text) == ContainerImage(kind, place)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["Upper", "a b", "-x", "rootfs:relative", "a.tar", "docker-archive:a.tar", "rootfs:/a/../b", "a:b:c", ""],
)
def test_what_names_no_image_is_refused(text: str):
    with pytest.raises(ValueError, match=r"expected|absolute|goes up"):
        parse_image(text)


def test_mounts():
    assert parse_mount("/data:/mnt") == Mount("/data", "/mnt")
    assert parse_mount("/data/a:/mnt/b:ro") == Mount("/data/a", "/mnt/b", read_only=True)
    for text in (
        "/data",
        "data:/mnt",
        "/data:mnt",
        "/data:/mnt:rx",
        "/data:/",
        "/data:/proc",
        "/a:/dev/x",
        "/a/..:/b",
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - each has another text
            parse_mount(text)


def test_a_node_must_have_a_runtime_and_for_folders_podman():
    assert required_labels("") == ()
    assert required_labels("python") == (CONTAINERS,)
    assert required_labels("rootfs:/a") == (CONTAINERS, ROOTFS)


def test_addresses_and_mounts_of_containers_ask_more_of_a_node():
    assert required_labels("python", has_address=True) == (CONTAINERS, ROOTFS)
    assert required_labels("python", has_mounts=True) == (CONTAINERS, MOUNTS)
    assert required_labels("", has_address=True, has_mounts=True) == ()
