"""Images and mounts of containers, as people write them, and what a node must have to run them.

An image is a name in a registry, an archive on the node (`docker-archive:/path.tar`, or a path that ends in .tar), or a
folder that becomes the root of the container (`rootfs:/path`). How they are got ready and run is `runner/containers`.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

# Labels that only the runner of a node sets: it has a runtime for containers; it is podman, which takes folders as
# images and gives containers addresses of their own; it can mount what users name.
CONTAINERS = ("phalanx.containers", "enabled")
ROOTFS = ("phalanx.rootfs", "enabled")
MOUNTS = ("phalanx.mounts", "enabled")
OF_RUNTIMES = (CONTAINERS, ROOTFS, MOUNTS)
IMAGE_BYTES_MAX = 1024
MOUNTS_MAX = 32
SNAPSHOTS = "localhost/phalanx-vps/"  # and the id of a VPS: only that VPS starts from them
ARCHIVES = "localhost/phalanx-archive"  # and a tag: loaded archives, which are found by their paths alone
ARCHIVE, FOLDER = "docker-archive:", "rootfs:"
# As the distribution protocol has it: an optional host, a path in lower case, an optional tag, an optional digest.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


class ContainerImage(Struct, frozen=True):
    """What a container is made from: a name in a registry, or a path on the node."""

    kind: Literal["registry", "archive", "rootfs"]
    place: str


class Mount(Struct, frozen=True):
    """A file or folder of the node that a container sees."""

    source: str
    target: str
    read_only: bool = False


def parse_image(text: str) -> ContainerImage:
    """The image that a text names; ValueError with what would be right."""
    if text.startswith(FOLDER):
        return ContainerImage("rootfs", _path(text.removeprefix(FOLDER)))
    if text.startswith((ARCHIVE, "/")) or text.endswith(".tar"):
        return ContainerImage("archive", _path(text.removeprefix(ARCHIVE)))
    if _NAME.fullmatch(text) is None:
        raise ValueError(
            "expected a name such as docker.io/library/python:3.12, an archive (/path/image.tar) or rootfs:/path"
        )
    return ContainerImage("registry", text)


def is_ours(image: str) -> bool:
    """Whether this is, or may be read as, a name that Phalanx gives to images: what users name is never one."""
    if not image or parse_image(image).kind != "registry":
        return False
    words = {part.partition(":")[0].partition("@")[0] for part in image.split("/")}
    return not words.isdisjoint(name.rstrip("/").rpartition("/")[2] for name in (SNAPSHOTS, ARCHIVES))


def parse_mount(text: str) -> Mount:
    """The mount that SRC:DST[:ro] describes; ValueError with what would be right."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not target or mode not in ("", "ro", "rw"):
        raise ValueError("expected SRC:DST or SRC:DST:ro, such as /data:/data:ro")
    found = Mount(_path(source), _path(target), mode == "ro")
    if found.target == "/" or found.target.split("/")[1] in ("proc", "sys", "dev"):
        raise ValueError("nothing can be mounted at /, /proc, /sys or /dev of a container")
    return found


def required_labels(
    image: str, *, has_address: bool = False, has_mounts: bool = False
) -> tuple[tuple[str, str], ...]:
    """What a node must carry to run this image, with an address or mounts; nothing without an image."""
    if not image:
        return ()
    takes_podman = has_address or image.startswith(FOLDER)
    return (CONTAINERS, *((ROOTFS,) if takes_podman else ()), *((MOUNTS,) if has_mounts else ()))


def _path(text: str) -> str:
    if not text.startswith("/") or "\0" in text or ":" in text:
        raise ValueError(f"{text[:80]!r} is not an absolute path without ':'")
    if ".." in text.split("/"):
        raise ValueError(f"{text[:80]!r} goes up by '..': give the path itself")
    return "/" + "/".join(part for part in text.split("/") if part not in ("", "."))
