"""What `phalanx doctor` looks at on the machine that it runs on: Python, folders, ports, cgroups, GPUs, containers."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from phalanx import __version__
from phalanx.cli.doctor_checks import Check, DoctorLine, fail, ok, warn
from phalanx.endpoint import ProcessOwner, endpoint
from phalanx.settings import Settings
from phalanx.store.address import read_address

PYTHON_MIN = (3, 11)
CGROUPS, MODULES, DEVICES = Path("/sys/fs/cgroup"), Path("/sys/module"), Path("/dev")
CONNECT_S = 2.0
SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin"


def machine_checks(settings: Settings) -> list[Check]:
    return [
        ("python", _python),
        ("settings", lambda: _settings(settings)),
        ("state folder", lambda: _state_folder(settings.state_dir)),
        ("disk", lambda: _disk(settings)),
        ("memory", lambda: _memory(settings)),
        ("ports", lambda: _ports(settings)),
        ("cgroups", _cgroups),
        ("GPUs", _gpus),
        ("containers", lambda: _containers(settings)),
        ("overlay network", lambda: _overlay(settings)),
        ("store", lambda: _store(settings)),
    ]


def _python() -> Iterator[DoctorLine]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        yield fail("python", f"Python {version}", f"use Python {'.'.join(map(str, PYTHON_MIN))} or later")
    else:
        yield ok("python", f"phalanx {__version__}, Python {version} ({sys.executable})")


def _settings(settings: Settings) -> Iterator[DoctorLine]:
    if settings.untrusted:
        yield warn(
            "settings", f"{settings.untrusted}; ignored", "`phalanx config trust`, if you wrote that file"
        )
    else:
        yield ok("settings", "read; `phalanx config show` lists them with where each comes from")


def _state_folder(folder: Path) -> Iterator[DoctorLine]:
    check = "state folder"
    if not folder.exists():
        parent = next(each for each in folder.parents if each.exists())
        if os.access(parent, os.W_OK):
            yield ok(check, f"{folder} is not there yet; `phalanx up` makes it")
        else:
            yield fail(
                check, f"{folder} cannot be made in {parent}", "give --state a folder that you may write to"
            )
        return
    about = folder.stat()
    if not os.access(folder, os.W_OK | os.X_OK):
        yield fail(
            check, f"{folder} cannot be written to", f"chown it to {os.geteuid()}, or give --state DIR"
        )
    elif stat.S_IMODE(about.st_mode) & 0o077:
        mode = stat.filemode(about.st_mode)
        yield warn(check, f"{folder} is open to others ({mode})", f"chmod 700 {folder}: it holds tokens")
    else:
        yield ok(check, f"{folder}, only for its owner")


def _disk(settings: Settings) -> Iterator[DoctorLine]:
    from phalanx.runner.health.machine_checks import check_disks

    folders = [settings.state_dir, Path(settings.runner.state_dir)]
    free_min = settings.runner.health_disk_free_bytes or 1 << 30
    for found in check_disks(folders, free_min, lambda _: False):
        if found.reason:
            yield fail("disk", found.reason, "make room; a runner here takes no work until there is some")
        else:
            yield ok("disk", f"{found.check} has room")


def _memory(settings: Settings) -> Iterator[DoctorLine]:
    from phalanx.runner.health.machine_checks import check_memory

    found = check_memory(settings.runner.health_memory_free_bytes or 256 << 20, lambda _: False)
    if found.reason:
        yield warn(
            "memory", found.reason, "end what uses it; a runner here takes no work until there is some"
        )
    else:
        yield ok("memory", "enough is available")


def _ports(settings: Settings) -> Iterator[DoctorLine]:
    local = endpoint(settings.state_dir)
    if local is not None and ProcessOwner.of(local.pid) is not None:
        yield ok("ports", f"the cluster in {settings.state_dir} listens at {local.address} and {local.link}")
        return
    for key, port in (("port", settings.coordinator.port), ("link_port", settings.coordinator.link_port)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                fix = f"stop what listens there (`ss -ltnp`), or set coordinator.{key}"
                yield warn("ports", f"port {port} is taken: {error.strerror}", fix)
            else:
                yield ok("ports", f"port {port} (coordinator.{key}) is free")


def _cgroups() -> Iterator[DoctorLine]:
    unified = (CGROUPS / "cgroup.controllers").exists()
    version = "v2" if unified else "v1"
    if not CGROUPS.exists():
        yield warn("cgroups", "there are none here", "tasks are not held to memory, processes and CPU time")
    elif os.geteuid() == 0 and os.access(CGROUPS, os.W_OK):
        yield ok("cgroups", f"{version}, and may be written to: a runner here holds tasks to their limits")
    else:
        fix = (
            "run the runner as root or with Delegate=yes (docs/operations/systemd.md) if tasks are to be held"
        )
        yield warn(
            "cgroups", f"{version}, without rights: memory and CPU time of tasks are not enforced", fix
        )


def _gpus() -> Iterator[DoctorLine]:
    import pynvml

    has_nodes = (DEVICES / "nvidiactl").exists()
    try:
        pynvml.nvmlInit()
        count, driver = pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if has_nodes:
            fix = "load the driver of the same version as its library (`nvidia-smi` says more), or reboot"
            yield fail("GPUs", f"there are NVIDIA devices, and NVML cannot be used: {error}", fix)
        else:
            yield ok("GPUs", "no NVIDIA driver here; a runner offers no GPUs")
    else:
        yield ok("GPUs", f"{count} NVIDIA devices, driver {driver}")


def _containers(settings: Settings) -> Iterator[DoctorLine]:
    from phalanx.runner.containers.found import find_runtime

    found = find_runtime(settings.runner.container_socket)
    if found.socket:
        yield ok("containers", found.text)
    else:
        fix = "start podman's or Docker's socket if tasks are to have images (docs/guides/containers.md)"
        yield warn("containers", found.text, fix)


def _overlay(settings: Settings) -> Iterator[DoctorLine]:
    check = "overlay network"
    if settings.overlay.mode == "off":
        yield ok(check, "off (overlay.mode)")
        return
    lacking = []
    if os.geteuid() != 0:
        lacking.append("root")
    if shutil.which("nft", path=SYSTEM_PATH) is None:
        lacking.append("nft (nftables)")
    if not (MODULES / "vxlan").exists():
        lacking.append("the kernel's module vxlan")
    if lacking:
        fix = "install nftables, `modprobe vxlan`, run the runner as root"
        yield warn(check, f"a runner here lacks {', '.join(lacking)}", fix)
    else:
        yield ok(check, "root, nft and vxlan are there")


def _store(settings: Settings) -> Iterator[DoctorLine]:
    """The servers of etcd or Redis that a coordinator here would use."""
    address = read_address(settings.coordinator.store, settings.coordinator.state_dir)
    if not address.hosts:
        yield ok("store", f"{address}, on this machine")
    for place in address.hosts:
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except OSError as error:
            fix = f"start it, or see its firewall; {address.kind} needs most of its members"
            yield fail("store", f"{address.kind} at {place} cannot be reached: {error}", fix)
        else:
            yield ok("store", f"{address.kind} at {place} listens")
