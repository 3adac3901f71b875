"""Settings: read once from flags, variables and files, then passed on as one value.

This is the only file that reads the environment. From strongest to weakest: flags; `PHALANX_*` variables; the
seeds' `KRISHIV_*` names for the same; the nearest `phalanx.toml` (or `[tool.phalanx]` of a pyproject.toml);
`$XDG_CONFIG_HOME/phalanx/config.toml`; `/etc/phalanx/conf.d/*.toml` and `phalanx.toml`; defaults. A key is
`section.name`, its variable `PHALANX_SECTION_NAME` (those of `client` leave it out). Token files live here too.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_type_hints

from msgspec import Meta, MsgspecError, Struct, convert, json

from phalanx.core.model.quantity import SECONDS_MAX, parse_bytes, parse_seconds
from phalanx.errors import PhalanxError, Unauthorized, Unavailable

SYSTEM, TOKEN = Path("/etc/phalanx"), re.compile(r"[!-~]{1,4096}")
ALIASES = {
    "KRISHIV_COORDINATOR": "client.address",
    "KRISHIV_COORDINATOR_BEARER_TOKEN": "client.token",
    "KRISHIV_COORDINATOR_BEARER_TOKEN_FILE": "client.token_file",
    "KRISHIV_MAX_TASK_RETRIES": "coordinator.max_task_retries",
    "KRISHIV_HEARTBEAT_TIMEOUT_SECS": "coordinator.lost_after_s",
}
# What tasks are given. A command run inside a task must not stumble over them.
TASK_VARIABLE = re.compile(
    "PHALANX_(JOB_(ID|NAME)|BATCH_ID|TASK_ID|ATTEMPT(_KEY)?|KEEPER|EPOCH|RESTART_COUNT|QUEUE|ARRAY_(INDEX|COUNT)"
    "|RANK|WORLD_SIZE|GROUP|(GROUP|LOCAL)_(RANK|SIZE)|HOSTNAME|NODE(_RANK|_IPS|_NAMES)?|NUM_NODES|CORES|NUMA|DEVICES"
    "|GPUS_PER_NODE|CHECKPOINT_DIR|DEADLINE)"
)


class ConfigError(PhalanxError):
    """A setting that cannot be used: which one, what it says, where it stands and what would be right."""

    status, exit_code, title = 500, 2, "Wrong setting"


class TokenError(ConfigError):
    """A token file that must not be used. Never a reason to try another one."""

    exit_code = 77


class Secret(str):
    """A token. Its repr hides it, so that no log line or traceback holds it by accident."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(hidden)"


_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_LOOPBACK = r"(?:localhost|::1|127(?:\.[0-9]{1,3}){3})"

# The sentence beside a type says what is expected. An address holds no user and no path: S9 keeps tokens out.
Port = Annotated[int, Meta(ge=1, le=65535), "a port from 1 to 65535"]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000), "a whole number from 0 to 1000000000"]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX), "a duration such as 30, 30s or 1m30s"]
Size = Annotated[int, Meta(ge=1, le=1 << 60), "a size in bytes, or such as 64MiB"]
Text = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z"), "a text of one line"]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\Z"), "a name such as n-1.rack-2"]
Address = Annotated[str, Meta(pattern=rf"^https?://{_HOST}(?::{_PORT})?\Z")]
Host = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,253}|[0-9A-Fa-f:.]{2,45})\Z")]
Join = Annotated[str, Meta(pattern=rf"^{_HOST}:{_PORT}\Z"), "host:port, such as 127.0.0.1:7434"]
Loopback = Annotated[str, Meta(pattern=rf"^{_LOOPBACK}\Z"), "a loopback address (others: ssh -L)"]
Folder = Annotated[Path, "a path"]
Output = Literal["table", "json", "yaml", "wide", "name"]


class Coordinator(Struct, frozen=True, kw_only=True):
    """What `phalanx coordinator` needs."""

    state_dir: Annotated[Folder, "where the coordinator keeps its database"]
    token_file: Annotated[Folder, "the token users show; made at the first start"]
    node_token_file: Annotated[Folder, "the token runners show; made at the first start"]
    bind: Annotated[Loopback, "the address both ports listen on"] = "127.0.0.1"
    port: Annotated[Port, "where REST listens"] = 7433
    link_port: Annotated[Port, "where runners dial in"] = 7434
    hosts: Annotated[tuple[Text, ...], "a list of names", "more values of the Host header to accept"] = ()
    heartbeat_s: Annotated[Seconds, "how often runners report"] = 5.0
    lost_after_s: Annotated[Seconds, "how long a runner may be silent before it counts as lost"] = 30.0
    max_task_retries: Annotated[Count, "retries of a task whose job does not say"] = 3
    loss_limit: Annotated[Count, "how often a task may be lost with its node before it fails"] = 5
    aging_s: Annotated[Count, "how long a job waits to be one point of priority more urgent; 0: never"] = 0
    pending_limit: Annotated[Count, "how many tasks may wait before submits are refused"] = 10_000_000

    def __post_init__(self) -> None:
        if self.lost_after_s < 2 * self.heartbeat_s:  # One late report would lose a node.
            raise ConfigError(f"coordinator.lost_after_s = {self.lost_after_s:g}: expected >= 2 heartbeat_s")
        if self.port == self.link_port:
            raise ConfigError(f"coordinator.port and coordinator.link_port are both {self.port}")


class Runner(Struct, frozen=True, kw_only=True):
    """What `phalanx runner` needs."""

    name: Annotated[Name, "the node's name"]
    state_dir: Annotated[Folder, "where the runner keeps its outbox and the logs of its tasks"]
    work_dir: Annotated[Folder, "where tasks without a folder of their own run"]
    token_file: Annotated[Folder, "the token shown to the coordinator"]
    join: Annotated[Join, "the coordinator's link port"] = "127.0.0.1:7434"
    pretend: Annotated[Text | None, "a text of one line", "invented hardware, such as gpus=8,cpus=64"] = None
    address: Annotated[Host | None, "a host name or IP address", "where other nodes reach this one"] = None
    labels: Annotated[Text | None, "a text of one line", "labels of the node, such as rack=r1;zone=a"] = None
    log_max_bytes: Annotated[Size, "how much of one stream of one attempt is kept"] = 64 << 20


class Client(Struct, frozen=True, kw_only=True):
    """What every other command needs to reach a cluster."""

    address: Annotated[Address | None, "http://host:port", "the cluster, if not that of `phalanx up`"] = None
    token_file: Annotated[Path | None, "a path", "the file with the token to show"] = None
    token: Annotated[Secret | None, "a token", "a token; token_file is safer, and beats it"] = None


class Given(NamedTuple):
    """What one source says of one key; sources of a lower rank are stronger."""

    value: Any
    source: str
    rank: int


class Settings(Struct, frozen=True, kw_only=True):
    """Everything, resolved. `given` holds what each source said of each key, the strongest first."""

    state_dir: Annotated[Folder, "where the cluster started by `phalanx up` keeps everything"]
    output: Annotated[Output, "table, json, yaml, wide or name", "how results are shown"] = "table"
    coordinator: Coordinator
    runner: Runner
    client: Client
    given: dict[str, tuple[Given, ...]] = {}


class Key(NamedTuple):
    """One setting: the type it is read as, what that expects, what it is for, and its variable."""

    type: Any
    expected: str
    purpose: str
    variable: str


def _keys(prefix: str, section: type) -> Iterator[tuple[str, Key]]:
    for name, hint in get_type_hints(section, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            *_, expected, purpose = hint.__metadata__
            variable = "PHALANX_" + (prefix.removeprefix("client.") + name).replace(".", "_").upper()
            yield prefix + name, Key(hint, expected, purpose, variable)


SECTIONS = {"coordinator": Coordinator, "runner": Runner, "client": Client}
KEYS = dict(_keys("", Settings)) | {k: v for s in SECTIONS for k, v in _keys(f"{s}.", SECTIONS[s])}
VARIABLES = {key.variable: name for name, key in KEYS.items()}


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
    try:
        for rank, source, base, values in _sources(flags or {}, env, folder or Path.cwd(), system):
            for name, value in values.items():
                given[name] = (*given.get(name, ()), Given(_read(name, value, source, base), source, rank))
        return _settled(given, env)
    except (OSError, RuntimeError) as error:  # A folder we may not look into, or a user without a home.
        raise ConfigError(f"settings cannot be read: {error}") from error


def _sources(
    flags: Mapping[str, object], env: Mapping[str, str], folder: Path, system: Path
) -> Iterator[tuple[int, str, Path, dict[str, object]]]:
    """Each source: its rank, its name, where its relative paths begin and its values, the strongest first."""
    yield 0, "the command line", folder, {name: value for name, value in flags.items() if value is not None}
    for variable in sorted(env):
        if variable.startswith("PHALANX_") and not TASK_VARIABLE.fullmatch(variable):
            if variable not in VARIABLES:
                _unknown("variable", variable, VARIABLES, "the environment")
            yield 1, variable, folder, {VARIABLES[variable]: env[variable]}
    for variable, name in ALIASES.items():
        if variable in env:
            yield 2, variable, folder, {name: env[variable]}
    for rank, path in enumerate(files(env, folder, system), start=3):
        yield rank, str(path), path.parent, _from_file(path)


def files(env: Mapping[str, str] = os.environ, folder: Path = Path(), system: Path = SYSTEM) -> list[Path]:
    """The files that are read, the strongest first. A drop-in beats the file it belongs to."""
    own = _base(env, "XDG_CONFIG_HOME", ".config") / "phalanx" / "config.toml"
    drop_ins = sorted(system.glob("conf.d/*.toml"), reverse=True)
    listed = [_project_file(folder.absolute()), own, *drop_ins, system / "phalanx.toml"]
    return [path for path in listed if path is not None and path.is_file()]


def _base(env: Mapping[str, str], variable: str, default: str) -> Path:
    """A folder of the XDG standard, which wants relative values ignored."""
    path = Path(env.get(variable, ""))
    return path if path.is_absolute() else Path(env.get("HOME") or Path.home(), default)


def _project_file(folder: Path) -> Path | None:
    """The nearest one. It could send our token anywhere, so it must be ours or the administrator's."""
    for parent in (folder, *folder.parents):
        for path in (parent / "phalanx.toml", parent / "pyproject.toml"):
            if path.is_file() and (path.stem == "phalanx" or b"tool.phalanx" in path.read_bytes()):
                if path.stat().st_uid in {os.geteuid(), 0}:
                    return path
                raise ConfigError(f"{path} belongs to another user", hint="copy it into a folder of your own")
    return None


def _from_file(path: Path) -> dict[str, object]:
    from tomllib import loads  # Most machines have no file, and then this costs nothing.

    try:
        table: Any = loads(path.read_text("utf-8"))
        if path.name == "pyproject.toml":
            table = table.get("tool", {}).get("phalanx", {})
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return dict(_flattened(table, "", path))


def _flattened(table: object, prefix: str, path: Path) -> Iterator[tuple[str, object]]:
    if not isinstance(table, dict):
        raise ConfigError(f"{prefix.rstrip('.') or 'tool.phalanx'} in {path} is not a table")
    for name, value in table.items():
        if not prefix and name in SECTIONS:
            yield from _flattened(value, f"{name}.", path)
        elif prefix + name == "client.token":
            raise ConfigError(f"client.token stands in {path}", hint="give client.token_file instead")
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
        shown = "(hidden)" if name == "client.token" else _shown(value)
        raise ConfigError(f"{name} = {shown} from {source}: expected {KEYS[name].expected}") from error


def _shown(value: object) -> str:
    with suppress(ValueError):  # Python refuses to write out an integer of thousands of digits.
        return repr(value)[:80]
    return "a huge number"


def _spelled(name: str, value: object, base: Path) -> object:
    """The value with units, shorthands and relative paths resolved."""
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
    if name == "client.address":
        return (text if "://" in text else f"http://{text}").removesuffix("/")
    if name == "client.token" and not TOKEN.fullmatch(text):
        raise ValueError("not a token")
    return [part.strip() for part in text.split(",")] if name == "coordinator.hosts" else text


def _settled(given: dict[str, tuple[Given, ...]], env: Mapping[str, str]) -> Settings:
    said = {name: each[0].value for name, each in given.items()}
    state = said.setdefault("state_dir", _base(env, "XDG_STATE_HOME", ".local/state") / "phalanx")
    said.setdefault("coordinator.state_dir", state / "coordinator")
    said.setdefault("coordinator.token_file", state / "credentials")
    said.setdefault("coordinator.node_token_file", state / "node-credentials")
    host = re.sub(r"[^a-z0-9._-]", "-", os.uname().nodename.lower())[:63].strip("._-")
    said.setdefault("runner.name", host or "node")
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
    return Settings(given=given, **made, **{name: value for name, value in said.items() if "." not in name})


def task_environment() -> dict[str, str]:
    """What tasks inherit from us: everything but our own settings and tokens (S9)."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("PHALANX_", "KRISHIV_"))}


class Endpoint(Struct, frozen=True):
    """Where the cluster of `phalanx up` is: endpoint.json of the state folder while it runs."""

    address: str
    link: str
    token_file: str
    pid: int


class Connection(NamedTuple):
    """Where a cluster is and what to show it."""

    address: str
    token: Secret


def connection(settings: Settings | None = None) -> Connection:
    """The cluster that was named, or the one that runs here, with its token."""
    settings = settings or load()
    client, local = settings.client, endpoint(settings.state_dir)
    address = client.address or (local.address if local else None)
    if address is None:
        raise Unavailable("no cluster is running here", hint="`phalanx up` starts one, --address names one")
    if client.token:
        return Connection(address, client.token)
    return Connection(address, read_token(client.token_file or _token_file(settings, address, local)))


def endpoint(state_dir: Path) -> Endpoint | None:
    path = state_dir / "endpoint.json"
    try:
        return json.decode(path.read_bytes(), type=Endpoint) if path.is_file() else None
    except (OSError, MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="`phalanx up` writes a new one") from error


def _token_file(settings: Settings, address: str, local: Endpoint | None) -> Path:
    """The token of a cluster on this machine. It is shown to no other."""
    if local and local.address == address:
        return Path(local.token_file)
    if re.match(rf"https?://{_LOOPBACK}(?::|\Z)", address) and settings.coordinator.token_file.exists():
        return settings.coordinator.token_file
    raise Unauthorized(f"no token to show to {address}", hint="use --token-file or PHALANX_TOKEN_FILE")


def read_token(path: Path) -> Secret:
    """The token in a file that only its owner may read, as ssh demands of keys."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            text = (file.read(5000) or b"").decode("latin-1").strip()
    except OSError as error:
        raise TokenError(f"token file {path} cannot be read: {error.strerror}") from error
    if found.st_mode & 0o077 or found.st_uid not in {os.geteuid(), 0}:
        raise TokenError(f"others may use {path} ({stat.filemode(found.st_mode)})", hint=f"chmod 600 {path}")
    if not TOKEN.fullmatch(text):
        raise TokenError(f"token file {path} holds no token")
    return Secret(text)


def ensure_token(path: Path) -> Secret:
    """The token in `path`, made if there is none. Two that start at once agree on one."""
    from secrets import token_urlsafe

    draft = path.with_name(f".{path.name}.{token_urlsafe(6)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"phx_{token_urlsafe(32)}\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
            draft.unlink()
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}", hint="try --state DIR") from error
    return read_token(path)
