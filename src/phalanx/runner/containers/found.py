"""Which container runtime this node has, and what it reports of it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct, structs

from phalanx.core.model.containers import CONTAINERS, MOUNTS, OF_RUNTIMES, ROOTFS
from phalanx.core.model.resources import Capacity
from phalanx.runner.containers.runtime import DOCKER, Runtime, RuntimeFailed

AUTO, NONE = "auto", "none"
ANSWER_S = 10.0  # a service that is started by its socket takes a while
TEXT_MAX = 200
CDI, NVIDIA = "cdi", "nvidia"  # drivers of devices
CDI_SINCE = [4, 1]  # version of podman


class RuntimeFound(Struct, frozen=True):
    """A runtime that answers; or why there is none, and then no socket."""

    socket: str = ""
    kind: str = ""  # podman or docker
    text: str = "none"  # for people: podman 4.3.1, or why none
    device_driver: str = ""  # cdi or nvidia: how it is given devices with their libraries; empty: it cannot

    @property
    def runtime(self) -> Runtime:
        return Runtime(self.socket)


def find_runtime(setting: str) -> RuntimeFound:
    """The runtime at the socket that the setting names, or at one of the usual ones."""
    if setting == NONE:
        return RuntimeFound(text="none: runner.container_socket is none")
    paths = sockets(setting)
    whys = []
    for path in paths:
        if setting == AUTO and not Path(path).is_socket():
            continue
        try:
            return _asked(path)
        except RuntimeFailed as error:
            whys.append(str(error))
    why = "; ".join(whys) or f"there is no socket of podman or Docker ({', '.join(paths)})"
    return RuntimeFound(text=f"none: {why}"[:TEXT_MAX])


def sockets(setting: str) -> list[str]:
    """Where a runtime is looked for."""
    if setting == NONE:
        return []
    return _usual() if setting == AUTO else [setting]


def with_runtime(capacity: Capacity, found: RuntimeFound, *, has_accounts: bool = False) -> Capacity:
    """A node's capacity with its runtime; labels that say so come from here alone.

    Docker cannot be held to what an account may read, so it mounts nothing for users with accounts.
    """
    own = [name for name, _ in OF_RUNTIMES]
    labels = {name: value for name, value in capacity.labels.items() if name not in own}
    if found.socket:
        labels |= dict([CONTAINERS])
    if found.kind == "podman":
        labels |= dict([ROOTFS])
    if found.socket and (found.kind == "podman" or not has_accounts):
        labels |= dict([MOUNTS])
    return structs.replace(capacity, containers=found.text, labels=labels)


def _usual() -> list[str]:
    if os.geteuid() == 0:
        return ["/run/podman/podman.sock", "/run/docker.sock"]
    return [f"/run/user/{os.geteuid()}/podman/podman.sock"]


def _asked(path: str) -> RuntimeFound:
    said = Runtime(path).call("GET", f"{DOCKER}/version", timeout_s=ANSWER_S)
    parts = said.get("Components") or []
    is_podman = any(part.get("Name") == "Podman Engine" for part in parts)
    kind = "podman" if is_podman else "docker"
    version = str(said.get("Version", ""))
    driver = _podman_driver(version) if is_podman else _docker_driver(path)
    return RuntimeFound(path, kind, f"{kind} {version}"[:TEXT_MAX].strip(), driver)


def _podman_driver(version: str) -> str:
    numbers = [int(part) for part in version.split("-", maxsplit=1)[0].split(".")[:2] if part.isdecimal()]
    return CDI if numbers >= CDI_SINCE else ""


def _docker_driver(path: str) -> str:
    """Docker says whether it reads CDI specifications, and whether it has NVIDIA's runtime."""
    try:
        about = Runtime(path).call("GET", f"{DOCKER}/info", timeout_s=ANSWER_S)
    except RuntimeFailed:
        return ""
    if about.get("CDISpecDirs"):
        return CDI
    return NVIDIA if NVIDIA in (about.get("Runtimes") or {}) else ""
