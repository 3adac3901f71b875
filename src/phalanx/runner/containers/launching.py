"""The containers of a runner's attempts: what their processes have to know, where sessions enter, and what is removed.

Names and labels of a container follow from the node's own mark and the attempt: a later runner knows what is its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

from phalanx.core.model.containers import parse_mount
from phalanx.core.model.orders import AttemptKey, Brief, Start, key_from_text, key_text
from phalanx.core.model.resources import Capacity, Device
from phalanx.errors import ConfigError
from phalanx.logger import logger
from phalanx.runner.accounts import Account
from phalanx.runner.containers.cdi import CdiDevices
from phalanx.runner.containers.found import CDI, RuntimeFound, with_runtime
from phalanx.runner.containers.preparing import ImagePreparations, PreparedImage
from phalanx.runner.containers.process import VARIABLE
from phalanx.runner.containers.runtime import DOCKER, RuntimeFailed
from phalanx.runner.device_nodes import DeviceNodes
from phalanx.runner.keeper_messages import Ticks
from phalanx.runner.parameters import own_command
from phalanx.runner.vps_options import CONTAINER_HOME, HOLD

if TYPE_CHECKING:
    from phalanx.runner.containers.body import ContainerSpec, OwnMount

log = logger("runner")
NO_LIBRARIES = "GPUs by their device nodes, without the driver's libraries: no CDI specification names them"
PROGRAM = Path(__file__).parent / "__main__.py"
NODE_LABEL, ATTEMPT_LABEL = "io.phalanx.node", "io.phalanx.attempt"
# What a container's root may do where tasks have the runner's own account. Not among them: raw packets, device nodes.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")


class ContainerDevices(NamedTuple):
    """What of the node's devices a container gets."""

    nodes: list[str]  # device nodes
    names: list[str]  # for the runtime, which adds the driver's libraries, too


class OfAttempt(Struct, frozen=True):
    """What else a container has of its attempt."""

    folders: tuple[str, ...]  # that it may write to
    result: str
    hosts: str = ""
    hostname: str = ""
    has_network: bool = False
    is_tracked: bool = False
    files: tuple[str, ...] = ()  # that it may read
    home: str = ""  # of a VPS
    beside: Sequence[str] = ()  # of a VPS: the program that moves in
    stdin: bool = False  # it is given standard input


def command() -> list[str]:
    """What the keeper starts instead of the user's command."""
    return [sys.executable, "-I", "-S", "-B", str(PROGRAM)]


class ContainerLaunches:
    """The containers of one node."""

    def __init__(
        self,
        found: RuntimeFound,
        mark: str,
        state_dir: Path,
        allowed: tuple[str, ...],
        limit_s: float,
        cdi: CdiDevices,
    ) -> None:
        self.found = found
        self.images = ImagePreparations(found, state_dir, limit_s, allowed)
        self._mark = mark[:16]
        self._folder = state_dir / "containers"
        self._state_dir = state_dir
        self._allowed = allowed
        self.nodes = DeviceNodes({})
        self.devices: tuple[Device, ...] = ()
        self.has_accounts = False  # whether tasks have the accounts of their users
        self._cdi = cdi
        self._removing: set[asyncio.Future[None]] = set()
        self._written = {
            key for key, path in self._files() if path.suffix == ".json"
        }  # no file is asked for each end

    def described(self, capacity: Capacity) -> Capacity:
        """A node's capacity with its runtime, and how containers get its devices."""
        about = self.found
        real = [each for each in self.devices if "pretend" not in each.uuid]
        if about.socket and real and not any(self._device_name(each.index) for each in real):
            about = structs.replace(about, text=f"{about.text}; {NO_LIBRARIES}")
        return with_runtime(capacity, about, has_accounts=self.has_accounts)

    def adopt(self, found: RuntimeFound) -> None:
        """The node has another runtime from now on, or none; containers that run keep theirs."""
        self.found = found
        self.images.adopt(found)

    def write(
        self,
        start: Start,
        brief: Brief,
        account: Account | None,
        env: dict[str, str],
        has: OfAttempt,
    ) -> dict[str, str]:
        """Describe the container of an attempt in a file; the variable that names it. Raises OSError."""
        prepared = self.images.ready.pop(start.key, PreparedImage())
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._path(start.key, "json")
        self._written.add(start.key)
        spec = self._spec(start, brief, account, env, has, prepared)
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(spec))
        return {VARIABLE: str(path)}

    def _spec(
        self,
        start: Start,
        brief: Brief,
        account: Account | None,
        env: dict[str, str],
        has: OfAttempt,
        prepared: PreparedImage,
    ) -> ContainerSpec:
        own: list[OwnMount] = [_own(path, path) for path in has.folders]
        own += [_own(path, path, read_only=True) for path in has.files]
        own += [_own(has.hosts, "/etc/hosts", read_only=True)] if has.hosts else []
        own += [_own(has.home, CONTAINER_HOME)] if has.home else []
        mounts = [parse_mount(text) for text in brief.command.mounts]
        devices = self._devices(start.grant.devices)
        return {
            "socket": self.found.socket,
            "kind": self.found.kind,
            "name": self.name_of(start.key),
            "labels": {NODE_LABEL: self._mark, ATTEMPT_LABEL: key_text(start.key)},
            "image": prepared.image,
            "rootfs": prepared.rootfs,
            "argv": [*(own_command(brief, start) or brief.command.argv if brief.vps is None else HOLD)],
            "beside": [*has.beside],
            "cwd": brief.command.cwd if brief.vps is None else CONTAINER_HOME,
            "env": env,
            "account": None if account is None else (account.uid, account.gid, [*account.groups]),
            "capabilities": [] if account is not None else [*CAPABILITIES],
            "mounts": [_own(each.source, each.target, read_only=each.read_only) for each in mounts],
            "own_mounts": own,
            "allowed": [*self._allowed],
            "closed": [str(self._state_dir.resolve()), self.found.socket],
            "has_network": has.has_network,
            "hostname": has.hostname,
            "devices": devices.nodes,
            "device_names": devices.names,
            "device_driver": self.found.device_driver,
            "is_tracked": has.is_tracked,
            "pid_file": str(self._path(start.key, "pid")),
            "result": has.result,
            "stdin": has.stdin,
        }

    def leader(self, key: AttemptKey) -> tuple[int, Ticks] | None:
        """The first process of a container, and when it began; None while there is none."""
        try:
            pid, born = map(int, self._path(key, "pid").read_text().split())
        except (OSError, ValueError):
            return None
        return pid, (born, born)

    def has(self, key: AttemptKey) -> bool:
        """Whether an attempt that runs is in a container."""
        return key in self._written

    def ended(self, key: AttemptKey, was_killed: bool) -> None:
        """Nothing of it is alive. What was killed could not remove its container, so that is done here."""
        self.images.ready.pop(key, None)
        if key not in self._written:
            return
        self._written.discard(key)
        for kind in ("json", "pid"):
            self._path(key, kind).unlink(missing_ok=True)
        if was_killed:
            self._later(lambda: self._remove(self.name_of(key)))

    async def sweep(self, live: Callable[[], Collection[AttemptKey]]) -> None:
        """Remove the containers and files that earlier runners left of attempts that are over.

        `live` is asked again once the containers are listed: attempts that began meanwhile have containers, too.
        """
        alive = live()
        for key, path in self._files():
            if key not in alive:
                self._written.discard(key)
                path.unlink(missing_ok=True)
        if not self.found.socket:
            return
        listed = await asyncio.to_thread(self._ours)
        alive = live()
        over = [id for id, key in listed if key not in alive]
        for id in over:
            await asyncio.to_thread(self._remove, id)

    async def settled(self) -> None:
        """All that is to be removed has been."""
        if self._removing:
            await asyncio.wait(self._removing)

    def close(self) -> None:
        self.images.close()

    def _files(self) -> list[tuple[AttemptKey, Path]]:
        """The files of attempts, of earlier runners too."""
        files = [path for path in self._folder.glob("*.*") if path.suffix in (".json", ".pid")]
        keys = [(_key(path.stem), path) for path in files]  # archives.json is of no attempt
        return [(key, path) for key, path in keys if key is not None]

    def _ours(self) -> list[tuple[str, AttemptKey]]:
        """The ids of this node's containers, and the attempts that they are of."""
        wanted = quote(msgspec.json.encode({"label": [f"{NODE_LABEL}={self._mark}"]}).decode())
        try:
            listed = self.found.runtime.call("GET", f"{DOCKER}/containers/json?all=1&filters={wanted}")
        except RuntimeFailed as error:
            log.warning("containers of earlier attempts cannot be looked for", why=str(error))
            return []
        found = []
        for each in listed.get("list", ()):
            labels: Mapping[str, str] = each.get("Labels") or {}
            key = _key(labels.get(ATTEMPT_LABEL, ""))
            if key is not None and labels.get(NODE_LABEL) == self._mark:
                found.append((str(each["Id"]), key))
        return found

    def _remove(self, name: str) -> None:
        try:
            self.found.runtime.call("DELETE", f"{DOCKER}/containers/{name}?force=1&v=1")
        except RuntimeFailed as error:
            if not error.is_missing:
                log.warning("a container cannot be removed", name=name, why=str(error))

    def _later(self, effect: object) -> None:
        assert callable(effect)
        future = asyncio.get_running_loop().run_in_executor(None, effect)
        self._removing.add(future)
        future.add_done_callback(self._removing.discard)

    def _devices(self, granted: Iterable[int]) -> ContainerDevices:
        """By their names where the runtime and this node know them, else by their device nodes."""
        found = ContainerDevices([], [])
        for index in granted:
            if name := self._device_name(index):
                found.names.append(name)
            else:
                found.nodes.extend(self.nodes.paths_of(index))
        return found

    def _device_name(self, index: int) -> str:
        device = next((each for each in self.devices if each.index == index), None)
        if device is None or not self.found.device_driver:
            return ""
        return self._cdi.name_of(device) if self.found.device_driver == CDI else device.uuid

    def name_of(self, key: AttemptKey) -> str:
        """The name of its container."""
        return f"phalanx-{self._mark}-{key[0]}-{key[1]}-{key[2]}"

    def _path(self, key: AttemptKey, kind: str) -> Path:
        return self._folder / f"{key[0]}_{key[1]}_{key[2]}.{kind}"


def parse_folders(text: str) -> tuple[str, ...]:
    """The folders that a setting lists; ConfigError for what is none."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        if not part.startswith("/"):
            raise ConfigError(
                f"runner.container_mounts: {part[:80]!r} is not an absolute path, expected such as /data;/scratch"
            )
        found.append(part.rstrip("/") or "/")
    return tuple(found)


def _own(source: str, target: str, *, read_only: bool = False) -> OwnMount:
    return {"source": source, "target": target, "read_only": read_only}


def _key(stem: str) -> AttemptKey | None:
    try:
        return key_from_text(stem.replace("_", "/"))
    except ValueError:
        return None
