"""Images are got ready before their attempts are started: pulled from a registry, loaded from an archive, or looked at.

Each image is prepared once for all attempts that wait for it, in a thread, for the runtime's socket is spoken to with
plain calls. When nobody waits any more, or time is up, its connection is cut, and the runtime gives up as well. What is
there is not pulled again; an archive is loaded again when the file has changed. Archives and folders are opened with
the rights of the task's account.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from phalanx.core.model.amounts import describe_bytes
from phalanx.core.model.containers import ARCHIVES, ContainerImage, parse_image
from phalanx.core.model.orders import AttemptKey
from phalanx.core.runner.effects import Prepare
from phalanx.logger import logger
from phalanx.runner.accounts import Account
from phalanx.runner.containers.archives import NoArchive, renamed
from phalanx.runner.containers.found import RuntimeFound
from phalanx.runner.containers.mounts import MountRefused, check_source
from phalanx.runner.containers.rights import files_as
from phalanx.runner.containers.runtime import DOCKER, RuntimeConnection, RuntimeFailed

log = logger("runner")
AT_ONCE, OF_USER = 16, 2  # images, and those of one user; the others wait
LOADED_MAX = 1000  # archives that are remembered
TEXT_MAX = 200
# What registries say of a name that they do not have (codes of the OCI's specification), and runtimes of one that is
# none. A refusal for want of rights is not among them: it may be this node that has no credentials.
_NOT_THERE = (
    "manifest unknown",
    "repository name not known to registry",
    "name unknown",
    "invalid reference format",
)
Done = Callable[[AttemptKey, "ImageFailed | None"], None]


class ImageFailed(Exception):
    """An image cannot be got ready; the code is for `process_refused`, the text for the user."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class PreparedImage(Struct, frozen=True):
    """What a container is made from: an image of the runtime by its id, or a folder."""

    image: str = ""
    rootfs: str = ""


class ImagePreparer(Protocol):
    """What the runner's loop needs; the simulator has its own."""

    def begin(self, effect: Prepare, account: Account | None, done: Done) -> None:
        """Get the image of an attempt ready; `done` is called later, unless it is abandoned."""
        ...

    def abandon(self, key: AttemptKey) -> None:
        """Nobody waits for this one any more."""
        ...

    def told(self) -> list[tuple[AttemptKey, str]]:
        """How far those are that are being prepared."""
        ...


class _Preparation:
    """One image, and who waits for it."""

    def __init__(self, image: ContainerImage, account: Account | None) -> None:
        self.image = image
        self.account = None if account is None else (account.uid, account.gid, account.groups)
        self.waiting: dict[AttemptKey, Done] = {}
        self.text = f"waiting to get {image.place} ready"
        self.is_over = False
        self._connection: RuntimeConnection | None = None

    def begun(self, connection: RuntimeConnection) -> None:
        self._connection = connection
        if self.is_over:
            connection.abort()

    def cut(self) -> None:
        """Let the thread that works at it find an end."""
        self.is_over = True
        if self._connection is not None:
            self._connection.abort()


class ImagePreparations:
    """The images of one node."""

    def __init__(
        self, found: RuntimeFound, state_dir: Path, limit_s: float, allowed: tuple[str, ...] = ()
    ) -> None:
        self._found = found
        self._limit_s = limit_s
        self._allowed = allowed
        self._state_dir = str(state_dir.resolve())
        self._loaded = LoadedArchives(state_dir / "containers" / "archives.json")
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: dict[tuple[str, str], _Preparation] = {}
        self._shares: dict[str, asyncio.Semaphore] = {}  # by user
        self._of: dict[AttemptKey, _Preparation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.ready: dict[AttemptKey, PreparedImage] = {}

    def adopt(self, found: RuntimeFound) -> None:
        """The node has another runtime from now on, or none."""
        self._found = found

    def begin(self, effect: Prepare, account: Account | None, done: Done) -> None:
        text, key = effect.brief.command.image, effect.start.key
        place = text, effect.brief.user
        preparation = self._under_way.get(place)
        if preparation is None or preparation.is_over:
            preparation = self._under_way[place] = _Preparation(parse_image(text), account)
            task = asyncio.ensure_future(self._prepare(place, preparation))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        preparation.waiting[key] = done
        self._of[key] = preparation

    def abandon(self, key: AttemptKey) -> None:
        self.ready.pop(key, None)
        preparation = self._of.pop(key, None)
        if preparation is not None:
            preparation.waiting.pop(key, None)
            if not preparation.waiting:
                preparation.cut()

    def told(self) -> list[tuple[AttemptKey, str]]:
        return [(key, preparation.text[:TEXT_MAX]) for key, preparation in self._of.items()]

    def close(self) -> None:
        """The runner stops: nobody waits any more."""
        for key in [*self._of]:
            self.abandon(key)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _prepare(self, place: tuple[str, str], preparation: _Preparation) -> None:
        failed: ImageFailed | None = None
        prepared = PreparedImage()
        share = self._shares.setdefault(place[1], asyncio.Semaphore(OF_USER))
        await share.acquire()
        try:
            async with asyncio.timeout(self._limit_s):
                prepared = await self._in_thread(preparation, share)
        except TimeoutError:
            preparation.cut()
            text = (
                f"image {preparation.image.place}: not ready after {self._limit_s:g} s (runner.image_limit_s)"
            )
            failed = ImageFailed("image_timeout", f"{text}: {preparation.text}")
        except ImageFailed as error:
            failed = error
        preparation.is_over = True
        if self._under_way.get(place) is preparation:
            del self._under_way[place]
        for key, done in preparation.waiting.items():
            self._of.pop(key, None)
            if failed is None:
                self.ready[key] = prepared
            done(key, failed)

    async def _in_thread(self, preparation: _Preparation, share: asyncio.Semaphore) -> PreparedImage:
        """The share is taken until the thread has ended, which may be long after the time is up."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="image")
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._work, preparation)
        work.add_done_callback(lambda _: share.release())
        return await asyncio.shield(work)

    def _work(self, preparation: _Preparation) -> PreparedImage:
        image = preparation.image
        if preparation.is_over:
            raise ImageFailed("stopped", "nobody waits for it")
        try:
            if image.kind == "rootfs":
                return self._folder(preparation)
            if image.kind == "archive":
                return self._archive(preparation)
            return self._pulled(preparation)
        except RuntimeFailed as error:
            if not error.status and not preparation.is_over and not self._answers():
                raise ImageFailed("exhausted", str(error)) from None
            code = "no_image" if is_no_such_image(str(error)) else "bad_image"
            raise ImageFailed(code, f"image {image.place}: {error}") from None
        except NoArchive as error:
            raise ImageFailed("no_image", f"image {image.place}: {error}") from None
        except MountRefused as error:
            raise ImageFailed("bad_image", str(error)) from None
        except OSError as error:
            raise ImageFailed("bad_image", f"image {image.place}: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
            # Files of users and answers of registries can be anything. Whoever waits has to be told.
            raise ImageFailed("bad_image", f"image {image.place}: {type(error).__name__}: {error}") from None

    def _answers(self) -> bool:
        try:
            self._found.runtime.call("GET", f"{DOCKER}/version")
        except RuntimeFailed:
            return False
        return True

    def _folder(self, preparation: _Preparation) -> PreparedImage:
        with files_as(preparation.account):
            real, fd = check_source(
                preparation.image.place, self._allowed, (self._state_dir, self._found.socket)
            )
            os.close(fd)
            os.close(os.open(real, os.O_RDONLY | os.O_DIRECTORY))
        return PreparedImage(rootfs=real)

    def _pulled(self, preparation: _Preparation) -> PreparedImage:
        name = preparation.image.place
        if (id := self._id_called(name)) is not None:
            return PreparedImage(image=id)
        preparation.text = f"pulling {name}"
        progress = PullProgress(name)
        path = f"{DOCKER}/images/create?fromImage={quote(with_tag(name), safe='')}"
        for line in self._found.runtime.lines(path, preparation.begun):
            if error := line.get("error") or (line.get("errorDetail") or {}).get("message"):
                raise RuntimeFailed(str(error), 500)
            preparation.text = progress.told(line)
        if (id := self._id_called(name)) is None:
            raise RuntimeFailed("the registry gave an image that the runtime does not have", 500)
        return PreparedImage(image=id)

    def _archive(self, preparation: _Preparation) -> PreparedImage:
        path = preparation.image.place
        with files_as(preparation.account):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb", buffering=0) as file:
            about = os.fstat(fd)
            state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
            known = self._loaded.image_of(path, state)
            if known and self._id_of(known) is not None:
                return PreparedImage(image=known)
            preparation.text = f"loading {path}"
            name = archive_name(path, state)
            told = partial(_loading, preparation, about.st_size)
            self._load(preparation, renamed(file, name, told))
        id = self._id_of(name)
        if id is None:
            raise RuntimeFailed("it is not an archive of an image", 500)
        self._loaded.remember(path, state, id)
        return PreparedImage(image=id)

    def _load(self, preparation: _Preparation, pieces: Iterator[bytes]) -> None:
        path = f"{DOCKER}/images/load?quiet=1"
        for line in self._found.runtime.lines(path, preparation.begun, pieces):
            if line.get("error"):
                raise RuntimeFailed(str(line["error"]), 500)

    def _id_called(self, name: str) -> str | None:
        """The image of this name. A runtime takes a word for the beginning of an id as well, of anybody's image."""
        found = self._inspected(with_tag(name))
        names = [*(found.get("RepoTags") or ()), *(found.get("RepoDigests") or ())]
        return str(found["Id"]) if any(is_called(each, name) for each in names) else None

    def _id_of(self, name: str) -> str | None:
        """The image with this id, or with a name that we gave it."""
        found = self._inspected(name)
        return str(found["Id"]) if found.get("Id") else None

    def _inspected(self, name: str) -> dict[str, Any]:
        try:
            return self._found.runtime.call("GET", f"{DOCKER}/images/{quote(name, safe='')}/json")
        except RuntimeFailed as error:
            if error.is_missing:
                return {}
            raise


class PullProgress:
    """How far a pull is, from what the runtime says of each layer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._layers: dict[str, tuple[int, int]] = {}

    def told(self, line: dict[str, Any]) -> str:
        """One line for people, after one more line of the runtime."""
        detail = line.get("progressDetail") or {}
        current, total = detail.get("current"), detail.get("total")
        if line.get("id") and isinstance(current, int) and len(self._layers) < LOADED_MAX:
            self._layers[str(line["id"])] = current, total if isinstance(total, int) else 0
        got = sum(current for current, _ in self._layers.values())
        whole = sum(total for _, total in self._layers.values())
        if not got:
            return f"pulling {self._name}"
        part = f" of {describe_bytes(whole)} ({min(99, 100 * got // whole)}%)" if whole else ""
        return f"pulling {self._name}: {describe_bytes(got)}{part}"


class LoadedArchives:
    """Which archive was loaded as which image, so that it is loaded again only when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[tuple[int, ...], str]] | None = None

    def image_of(self, path: str, state: tuple[int, ...]) -> str:
        """The id of its image; empty if the file is not as it was, or never was loaded."""
        known, id = self._read().get(path, ((), ""))
        return id if tuple(known) == state else ""

    def remember(self, path: str, state: tuple[int, ...], id: str) -> None:
        known = self._read()
        known.pop(path, None)
        known[path] = state, id
        while len(known) > LOADED_MAX:
            del known[next(iter(known))]
        draft = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(known))
            draft.replace(self._path)
        except OSError as error:
            log.warning("loaded archives cannot be remembered", why=str(error))

    def _read(self) -> dict[str, tuple[tuple[int, ...], str]]:
        if self._known is None:
            try:
                self._known = _decode(self._path.read_bytes())
            except (OSError, msgspec.MsgspecError):
                self._known = {}
        return self._known


def is_no_such_image(text: str) -> bool:
    """Whether a runtime's refusal says that there is no such image anywhere."""
    return any(each in text for each in _NOT_THERE)


def with_tag(name: str) -> str:
    """The name as a registry is asked for it: without a tag a runtime would fetch all there are."""
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"


def is_called(known: str, name: str) -> bool:
    """Whether a name of an image is what a user means: the whole name, or one without its registry."""
    wanted = with_tag(name)
    if "@" in wanted:
        repository, _, digest = wanted.partition("@")
        folder, slash, last = repository.rpartition("/")
        wanted = f"{folder}{slash}{last.partition(':')[0]}@{digest}"
    short = wanted.removeprefix("docker.io/")  # Docker leaves out its own registry
    return known in (wanted, short, short.removeprefix("library/")) or known.endswith(f"/{wanted}")


def archive_name(path: str, state: tuple[int, ...]) -> str:
    """What an archive is called by the runtime: another name for each file that it was."""
    digest = hashlib.sha256(f"{path} {state}".encode()).hexdigest()[:32]
    return f"{ARCHIVES}:{digest}"


def _loading(preparation: _Preparation, size: int, count: int) -> None:
    preparation.text = f"loading {preparation.image.place} ({100 * count // max(1, size)}%)"


_decode = msgspec.json.Decoder(dict[str, tuple[tuple[int, ...], str]]).decode
