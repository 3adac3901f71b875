"""Settings read once from flags, variables and files, then passed on as one value.

This is the only file that reads the environment. From strongest to weakest: flags; `PHALANX_*` variables; the
seeds' `KRISHIV_*` names for the same; the nearest `phalanx.toml` (or `[tool.phalanx]` of a pyproject.toml);
`$XDG_CONFIG_HOME/phalanx/config.toml`; `/etc/phalanx/conf.d/*.toml` and `phalanx.toml`; defaults. A key is
`section.name`, its variable `PHALANX_SECTION_NAME` (those of `client` leave it out).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from msgspec import MsgspecError, convert

from phalanx.core.model.quantity import parse_bytes, parse_seconds
from phalanx.errors import ConfigError
from phalanx.settings import ALIASES, KEYS, LISTS, SECRETS, SECTIONS, VARIABLES, Given, Settings
from phalanx.tokenfile import TOKEN

SYSTEM = Path("/etc/phalanx")
# What tasks are given. A command run inside a task must not stumble over them.
TASK_VARIABLE = re.compile(
    "PHALANX_(JOB_(ID|NAME)|BATCH_ID|TASK_(ID|TOKEN)|ATTEMPT(_KEY)?|KEEPER|EPOCH|RESTART_COUNT|QUEUE|ARRAY_(INDEX|COUNT)"
    "|RANK|WORLD_SIZE|GROUP|(GROUP|LOCAL)_(RANK|SIZE)|HOSTNAME|NODE(_RANK|_IPS|_NAMES)?|NUM_NODES|CORES|NUMA|DEVICES"
    "|GPUS_PER_NODE|CHECKPOINT_DIR|DEADLINE)"
)


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
    for variable, names in ALIASES.items():
        if variable in env:
            yield 2, variable, folder, dict.fromkeys(names, env[variable])
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
        elif prefix + name in SECRETS:
            raise ConfigError(f"{prefix}{name} stands in {path}", hint="name a file that holds it instead")
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
    if name not in LISTS:
        return text
    parts = [part.strip() for part in text.split(",")]
    return [_site(part) for part in parts] if name == "client.address" else parts


def _site(text: str) -> str:
    return (text if "://" in text else f"http://{text}").removesuffix("/")


def _settled(given: dict[str, tuple[Given, ...]], env: Mapping[str, str]) -> Settings:
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
    return Settings(given=given, **made, **{name: value for name, value in said.items() if "." not in name})


def task_environment() -> dict[str, str]:
    """What tasks inherit from us: everything but our own settings and tokens (S9)."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("PHALANX_", "KRISHIV_"))}
