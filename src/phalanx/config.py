"""Reads settings once, from flags, variables and files: which project files are trusted, what tasks inherit.

This is the only file that reads the environment. In order of precedence: flags; `PHALANX_*` variables;
Krishiv's `KRISHIV_*` names for the same; the nearest `phalanx.toml` (or `[tool.phalanx]` of a pyproject.toml);
`$XDG_CONFIG_HOME/phalanx/config.toml`; `/etc/phalanx/conf.d/*.toml` and `phalanx.toml`; defaults. A key is
`section.name`, its variable `PHALANX_SECTION_NAME` (those of `client` leave it out). A project file that was not
trusted sets next to nothing.

A project file comes with a folder that anyone may have written, such as a cloned repository. Until its reader trusts it
with `phalanx config trust` it may only choose how results look (`FREE`); a file that has changed since is not trusted
any more. Trusted files are listed, by path and content, in one file of the user's own.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from msgspec import MsgspecError, Struct, convert, json

from phalanx.core.model.amounts import parse_bytes, parse_seconds
from phalanx.errors import ConfigError, Conflict, Unavailable
from phalanx.settings import (
    KEYS,
    LISTS,
    SECRETS,
    SECTIONS,
    VARIABLES,
    Given,
    Secret,
    Settings,
    TaskAccess,
    Untrusted,
)
from phalanx.settings_aliases import ALIASES
from phalanx.tokenfile import TOKEN, write_token

_SCHEMES = {"": "http", "grpc+tcp": "grpc", "grpc+tls": "grpcs"}
SYSTEM = Path("/etc/phalanx")
# What tasks are given. A command run inside a task must not stumble over them.
TASK_VARIABLE = re.compile(
    "PHALANX_(JOB_(ID|NAME|NUMBER)|BATCH_ID|TASK_(ID|TOKEN|ADDRESS|CA_FILE)|ATTEMPT(_KEY)?|KEEPER|EPOCH|RESTART_COUNT|QUEUE|ARRAY_(INDEX|COUNT)"
    "|RANK|WORLD_SIZE|GROUP|(GROUP|LOCAL)_(RANK|SIZE)|HOSTNAME|NODE(_RANK|_IPS|_NAMES)?|NUM_NODES|CORES|NUMA|DEVICES"
    "|GPUS_PER_NODE|IP|PEERS|SUBDOMAIN|HOSTS|CHECKPOINT_DIR|DEADLINE|RESULT|ARTIFACTS|SCRATCH_DIR|SPEC|MERGED|PARAMS|PARAM_[A-Za-z0-9_]+)"
)
_INHERITED = re.compile("PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|VIRTUAL_ENV|CONDA_[A-Z0-9_]+")
FREE = frozenset({"output"})  # what any project file may set
TRUSTED_MAX = 1000
_FILE_BYTES_MAX = 4 << 20


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    system: Path = SYSTEM,
) -> Settings:
    """Read every source, or raise ConfigError. Flags that are None were not given."""
    env = os.environ if environment is None else environment
    given: dict[str, tuple[Given, ...]] = {}
    untrusted: Untrusted | None = None
    try:
        for source in _sources(flags or {}, env, folder or Path.cwd(), system):
            for name, value in source.values.items():
                read = _read(name, value, source.name, source.base)
                given[name] = (*given.get(name, ()), Given(read, source.name, source.rank))
            if missed := tuple(name for name in source.withheld if name not in given):
                untrusted = Untrusted(source.name, missed)
        return _settled(given, env, untrusted)
    except (OSError, RuntimeError) as error:  # A folder we may not look into, or a user without a home.
        raise ConfigError(f"settings cannot be read: {error}") from error


class _Source(NamedTuple):
    """One source; a lower rank takes precedence. Its relative paths begin at `base`."""

    rank: int
    name: str
    base: Path
    values: dict[str, object]
    withheld: tuple[str, ...] = ()  # what it would say if it were trusted


def _sources(
    flags: Mapping[str, object], env: Mapping[str, str], folder: Path, system: Path
) -> Iterator[_Source]:
    """Each source, in order of precedence."""
    said = {name: value for name, value in flags.items() if value is not None}
    yield _Source(0, "the command line", folder, said)
    for variable in sorted(env):
        if variable.startswith("PHALANX_") and not TASK_VARIABLE.fullmatch(variable):
            if variable not in VARIABLES:
                _unknown("variable", variable, VARIABLES, "the environment")
            yield _Source(1, variable, folder, {VARIABLES[variable]: env[variable]})
    for variable, names in ALIASES.items():
        if variable in env:
            yield _Source(2, variable, folder, dict.fromkeys(names, env[variable]))
    project = project_file(folder, system)
    if project is not None:
        yield _project(project, trusted(env))
    for rank, path in enumerate(_files_of_user_and_system(env, system), start=4):
        yield _Source(rank, str(path), path.parent, from_file(path, path.read_bytes()))


def _project(path: Path, trust: Trust) -> _Source:
    """What the project's file may set. Content is read once, so that what is trusted is what is used."""
    body = path.read_bytes()
    values = _said_in(path, body)
    source = _Source(3, str(path), path.parent, values)
    guarded = tuple(name for name in values if name not in FREE)
    if not guarded or trust.holds(path, body):
        _refuse_secrets(path, values)
        return source
    free = {name: value for name, value in values.items() if name in FREE}
    return source._replace(values=free, withheld=guarded)


def trusted(env: Mapping[str, str] = os.environ) -> Trust:
    """The project files this user trusts; the location of that list cannot be configured."""
    return Trust(_base(env, "XDG_STATE_HOME", ".local/state") / "phalanx" / "trusted-projects.json")


def files(env: Mapping[str, str] = os.environ, folder: Path = Path(), system: Path = SYSTEM) -> list[Path]:
    """The files that are read, in order of precedence. A drop-in overrides the file it belongs to."""
    project = project_file(folder, system)
    return [*([project] if project else []), *_files_of_user_and_system(env, system)]


def _files_of_user_and_system(env: Mapping[str, str], system: Path) -> list[Path]:
    own = _base(env, "XDG_CONFIG_HOME", ".config") / "phalanx" / "config.toml"
    drop_ins = sorted(system.glob("conf.d/*.toml"), reverse=True)
    return [path for path in (own, *drop_ins, system / "phalanx.toml") if path.is_file()]


def _base(env: Mapping[str, str], variable: str, default: str) -> Path:
    """A folder of the XDG standard, which wants relative values ignored."""
    path = Path(env.get(variable, ""))
    return path if path.is_absolute() else Path(env.get("HOME") or Path.home(), default)


def project_file(folder: Path = Path(), system: Path = SYSTEM) -> Path | None:
    """The nearest one. It must be ours or the administrator's, which is not enough to be trusted: clones are ours."""
    folder = folder.absolute()
    for parent in (folder, *folder.parents):
        if parent == system:
            return None
        for path in (parent / "phalanx.toml", parent / "pyproject.toml"):
            if path.is_file() and (path.stem == "phalanx" or b"tool.phalanx" in path.read_bytes()):
                if path.stat().st_uid in {os.geteuid(), 0}:
                    return path
                raise ConfigError(f"{path} belongs to another user", hint="copy it into a folder of your own")
    return None


def from_file(path: Path, body: bytes) -> dict[str, object]:
    """What a file sets, by key, whether or not it is trusted; no file may set a token."""
    values = _said_in(path, body)
    _refuse_secrets(path, values)
    return values


def _refuse_secrets(path: Path, values: Mapping[str, object]) -> None:
    for name in values:
        if name in SECRETS:
            raise ConfigError(
                f"{name} is set in {path}, where it must not be", hint="name a file that holds it instead"
            )


def _said_in(path: Path, body: bytes) -> dict[str, object]:
    from tomllib import loads  # Most machines have no file, and then this costs nothing.

    try:
        table: Any = loads(body.decode("utf-8"))
        if path.name == "pyproject.toml":
            table = table.get("tool", {}).get("phalanx", {})
    except (ValueError, RecursionError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return dict(_flattened(table, "", path))


def _flattened(table: object, prefix: str, path: Path) -> Iterator[tuple[str, object]]:
    if not isinstance(table, dict):
        raise ConfigError(f"{prefix.rstrip('.') or 'tool.phalanx'} in {path} is not a table")
    for name, value in table.items():
        if not prefix and name in SECTIONS:
            yield from _flattened(value, f"{name}.", path)
        elif prefix + name not in KEYS:
            _unknown("key", prefix + name, KEYS, str(path))
        else:
            yield prefix + name, value


def _unknown(word: str, name: str, known: Collection[str], where: str) -> NoReturn:
    from difflib import get_close_matches

    near = get_close_matches(name[:80], known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`phalanx config show` lists what there is"
    raise ConfigError(f"unknown {word} {name[:80]!r} in {where}", hint=hint)


def _read(name: str, value: object, source: str, base: Path) -> Any:
    try:
        spelled = _spelled(name, value, base)
        return convert(spelled, KEYS[name].type, strict=False, dec_hook=lambda made, text: made(text))
    except (ValueError, MsgspecError) as error:
        shown = "(hidden)" if name in SECRETS else _shown(value)
        raise ConfigError(f"{name} = {shown} from {source}: expected {KEYS[name].expected}") from error


def _shown(value: object) -> str:
    with suppress(ValueError):  # Python refuses to write out an integer of thousands of digits.
        return re.sub(r"://[^/]*@", "://(hidden)@", repr(value))[:80]  # an address may hold a password
    return "a huge number"


def _spelled(name: str, value: object, base: Path) -> object:
    """The value with units, shorthands and relative paths resolved."""
    if name == "elastic.mode":  # as FlowMesh has it, true or false
        return {"true": "auto", "false": "off"}.get(str(value).lower(), value)
    if not isinstance(value, str | Path):
        return value
    text = str(value)
    if name.endswith("_s"):
        return parse_seconds(text)
    if name.endswith("_bytes"):
        return parse_bytes(text)
    if name.endswith(("_dir", "_file")):
        if not text or not text.isprintable():
            raise ValueError("not a path")
        return str(base / Path(text).expanduser())
    if name in SECRETS:
        each = re.split(r"[,\n]", text) if name == "coordinator.tokens" else [text]
        if not all(TOKEN.fullmatch(token.strip()) for token in each if len(each) == 1 or token.strip()):
            raise ValueError("not a token")
    if name in ("elastic.command", "runner.health_command"):
        return _words(text)
    if name not in LISTS:
        return text
    parts = [part.strip() for part in text.split(",")]
    return [_url(part) for part in parts] if name == "client.address" else parts


def _words(text: str) -> list[str]:
    """A command line as a list, quoted as in a shell; none is started."""
    from shlex import split  # Only a daemon with such a program needs it.

    return split(text)


def _url(text: str) -> str:
    """An address with its scheme; gRPC without and with TLS may be written as Krishiv does."""
    scheme, _, place = text.rpartition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{place}".removesuffix("/")


def _settled(
    given: dict[str, tuple[Given, ...]], env: Mapping[str, str], untrusted: Untrusted | None
) -> Settings:
    said = {name: each[0].value for name, each in given.items()}
    state = said.setdefault("state_dir", _base(env, "XDG_STATE_HOME", ".local/state") / "phalanx")
    said.setdefault("coordinator.state_dir", state / "coordinator")
    said.setdefault("coordinator.token_file", state / "credentials")
    said.setdefault("coordinator.node_token_file", state / "node-credentials")
    said.setdefault("coordinator.secret_file", state / "cluster-secret")
    said.setdefault("coordinator.audit_file", said["coordinator.state_dir"] / "audit.jsonl")
    host = re.sub(r"[^a-z0-9._-]", "-", os.uname().nodename.lower())[:63].strip("._-")
    said.setdefault("runner.name", host or "node")
    said.setdefault("coordinator.name", host or "coordinator")
    said.setdefault("runner.state_dir", state / "runners" / said["runner.name"])
    said.setdefault("runner.work_dir", said["runner.state_dir"] / "work")
    said.setdefault("runner.token_file", state / "node-credentials")
    file, token = given.get("client.token_file"), given.get("client.token")
    if file and token:  # From equally strong sources the file is taken: a variable is seen by every child.
        del said["client.token" if file[0].rank <= token[0].rank else "client.token_file"]
    made: dict[str, Any] = {
        section: kind(**{k.rpartition(".")[2]: v for k, v in said.items() if k.startswith(section)})
        for section, kind in SECTIONS.items()
    }
    rest = {name: value for name, value in said.items() if "." not in name}
    return Settings(given=given, untrusted=untrusted, task=_task_access(env), **made, **rest)


def _task_access(env: Mapping[str, str]) -> TaskAccess | None:
    """How a command inside a task reaches the cluster of that task, if it is inside one."""
    address, token = env.get("PHALANX_TASK_ADDRESS"), env.get("PHALANX_TASK_TOKEN")
    if not address or not token or not TOKEN.fullmatch(token):
        return None
    file = env.get("PHALANX_TASK_CA_FILE")
    return TaskAccess(address, Secret(token), Path(file) if file else None)


def task_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What tasks inherit from our own environment: PATH and locale, and no more. Anything else may be a
    secret of one user, and tasks belong to all users."""
    return {name: text for name, text in env.items() if _INHERITED.fullmatch(name)}


def environment() -> Mapping[str, str]:
    """Our own, for those who are given names of theirs in it."""
    return os.environ


class Trusted(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds: SHA-256 digests of contents, by path."""

    files: dict[str, str]


class Trust:
    """The project files that were trusted, kept in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, file: Path, body: bytes) -> bool:
        """Whether this file was trusted with this very content."""
        return self.files().get(named(file)) == digest(body)

    def files(self) -> dict[str, str]:
        """The digests of what is trusted, by path."""
        if not self.path.exists():
            return {}
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                body = file.read(_FILE_BYTES_MAX)
            _check_ours(self.path, found)
            return json.decode(body, type=Trusted).files
        except (OSError, MsgspecError) as error:
            hint = "delete it, and trust your project files again"
            raise ConfigError(f"{self.path} cannot be read: {error}", hint=hint) from error

    def add(self, file: Path, body: bytes) -> None:
        files = self.files() | {named(file): digest(body)}
        if len(files) > TRUSTED_MAX:
            hint = "`phalanx config untrust FILE` forgets one"
            raise Conflict(f"{TRUSTED_MAX} project files are trusted already", hint=hint)
        self._write(files)

    def remove(self, file: Path) -> bool:
        """Forget a file; False if it was not trusted."""
        files = self.files()
        was_there = files.pop(named(file), None) is not None
        if was_there:
            self._write(files)
        return was_there

    def _write(self, files: dict[str, str]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_token(self.path, json.format(json.encode(Trusted(files)), indent=2).decode() + "\n")
        except OSError as error:
            raise Unavailable(f"cannot write {self.path}: {error.strerror}") from error


def named(file: Path) -> str:
    """A file's name in the list. Its folder is resolved; a link keeps its own name, for what it leads to may change."""
    return str(file.parent.resolve() / file.name)


def digest(body: bytes) -> str:
    from hashlib import sha256  # Most folders have no project file, and then this costs nothing.

    return sha256(body).hexdigest()


def _check_ours(path: Path, found: os.stat_result) -> None:
    """Anyone who can write here could trust anything in our name."""
    if found.st_uid not in {os.geteuid(), 0} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"others may write {path} ({stat.filemode(found.st_mode)}, user {found.st_uid})",
            hint=f"look at it with `phalanx config trust --list`, or delete it; then chmod 600 {path}",
        )
