"""What a runtime is asked to make: one container of an attempt, in podman's words and in Docker's.

A container is never privileged. It has no capability but those that the spec names, cannot get more by any program in
its image, and has no port, volume or health check of the image's own. `ContainerSpec` is written by the runner, as a
file, and read by the attempt's process.
"""

from __future__ import annotations

import resource

_MOST = 1 << 20  # of open files, as the kernel has it

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class OwnMount(TypedDict):
        """A mount of ours, which needs no leave: the folders of the attempt."""

        source: str
        target: str
        read_only: bool

    class ContainerSpec(TypedDict):
        """One container."""

        socket: str
        kind: str  # podman or docker
        name: str
        labels: dict[str, str]
        image: str  # its id; empty for a folder
        rootfs: str
        argv: list[str]
        beside: list[str]  # of a VPS: a program of ours that is started with it, given its pid, and ends it
        cwd: str | None
        env: dict[str, str]  # besides what the keeper adds; our own environment has none of the job's
        account: tuple[int, int, list[int]] | None  # uid, gid, groups; None: the image's own user
        capabilities: list[str]
        mounts: list[OwnMount]  # as the user asks for them
        own_mounts: list[OwnMount]
        allowed: list[str]  # folders below which users may mount
        closed: list[str]  # what no mount may show, whatever is allowed
        has_network: bool  # it is in the network namespace of its process; else in the node's
        hostname: str
        devices: list[str]  # device nodes
        device_names: list[str]  # by CDI, or by their UUIDs for `device_driver`
        device_driver: str  # of Docker: cdi or nvidia
        is_tracked: bool  # whoever signals the attempt reaches the container's processes by their cgroup
        pid_file: str
        result: str
        stdin: bool  # our own standard input is for its first process


def podman_body(spec: ContainerSpec, env: dict[str, str], pid: int) -> dict[str, Any]:
    """For podman; `pid` is whose network namespace it gets, if it has one of its own."""
    network = (
        {"nsmode": "path", "value": f"/proc/{pid}/ns/net"} if spec["has_network"] else {"nsmode": "host"}
    )
    body: dict[str, Any] = {
        "name": spec["name"],
        "labels": spec["labels"],
        "entrypoint": spec["argv"],
        "command": [],
        "env": env,
        "cap_drop": ["ALL"],
        "cap_add": spec["capabilities"],
        "no_new_privileges": True,
        "privileged": False,
        "netns": network,
        "mounts": [_podman_mount(each) for each in (*spec["own_mounts"], *spec["mounts"])],
        "devices": [{"path": path} for path in (*spec["devices"], *spec["device_names"])],
        "r_limits": [{"type": name, "soft": soft, "hard": hard} for name, soft, hard in _limits()],
        "log_configuration": {"driver": "none"},
        "image_volume_mode": "ignore",
        "healthconfig": {"Test": ["NONE"]},
        "systemd": "false",
        "stdin": spec["stdin"],
        "terminal": False,
    }
    if spec["rootfs"]:
        body |= {"rootfs": spec["rootfs"], "rootfs_overlay": True}
    else:
        body["image"] = spec["image"]
    if spec["account"] is not None:
        uid, gid, groups = spec["account"]
        body |= {"user": f"{uid}:{gid}", "groups": [str(each) for each in groups]}
    if spec["hostname"]:
        body["hostname"] = spec["hostname"]
    if spec["cwd"]:
        body["work_dir"] = spec["cwd"]
    return body


def docker_body(spec: ContainerSpec, env: dict[str, str]) -> dict[str, Any]:
    """For Docker, which takes no folder as an image and no network namespace by its path."""
    host: dict[str, Any] = {
        "NetworkMode": "host",
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": spec["capabilities"],
        "SecurityOpt": ["no-new-privileges"],
        "Mounts": [_docker_mount(each) for each in (*spec["own_mounts"], *spec["mounts"])],
        "Devices": [
            {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"}
            for path in spec["devices"]
        ],
        "Ulimits": [{"Name": name, "Soft": soft, "Hard": hard} for name, soft, hard in _limits()],
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
    }
    if spec["device_names"]:
        host["DeviceRequests"] = [_device_request(spec)]
    body: dict[str, Any] = {
        "Image": spec["image"],
        "Entrypoint": spec["argv"],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": spec["labels"],
        "Healthcheck": {"Test": ["NONE"]},
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": host,
    }
    if spec["stdin"]:
        body |= {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True}
    if spec["account"] is not None:
        uid, gid, _ = spec["account"]
        body["User"] = (
            f"{uid}:{gid}"  # no further groups: Docker looks them up in the image, and starts at once
        )
    if spec["hostname"]:
        body["Hostname"] = spec["hostname"]
    if spec["cwd"]:
        body["WorkingDir"] = spec["cwd"]
    return body


def _device_request(spec: ContainerSpec) -> dict[str, Any]:
    wanted = {"Driver": spec["device_driver"], "DeviceIDs": spec["device_names"]}
    return wanted | ({} if spec["device_driver"] == "cdi" else {"Capabilities": [["gpu"]]})


def _podman_mount(mount: OwnMount) -> dict[str, Any]:
    options = ["rbind", "nosuid", "nodev", "ro" if mount["read_only"] else "rw"]
    return {"type": "bind", "source": mount["source"], "destination": mount["target"], "options": options}


def _docker_mount(mount: OwnMount) -> dict[str, Any]:
    found = {"Type": "bind", "Source": mount["source"], "Target": mount["target"]}
    return {**found, "ReadOnly": mount["read_only"], "BindOptions": {"Propagation": "rprivate"}}


def _limits() -> list[tuple[str, int, int]]:
    """Our own: a runtime's defaults may be more than the kernel lets it give. No more processes than there can be pids:
    podman lowers its own limit to that.
    """
    known = (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:  # noqa: PTH123 (no pathlib here)
        most = {"nproc": int(file.read())}
    found = []
    for name, number in known:
        soft, hard = (_bounded(each, most.get(name, _MOST)) for each in resource.getrlimit(number))
        found.append((name, soft, hard))
    return found


def _bounded(limit: int, most: int) -> int:
    return most if limit == resource.RLIM_INFINITY else min(limit, most)
