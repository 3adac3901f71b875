"""Variables that act on a program before its first instruction: a job's own must not act on one that is still root.

A task of an account is started through `setpriv`, which is root until its last step, and the loader of it would load
whatever LD_PRELOAD of the job names. So such variables go by other names until the account is taken on; then `env`
gives them their own again. Their values are in no command, which every account of the machine could read.
"""

from __future__ import annotations

OURS = "PHALANX_"
HELD_BACK = "PHALANX_LATER_"  # how the names begin for a program of ours
ENV = "/usr/bin/env"
# What loaders and libraries of C read by themselves: glibc's own list of what is taken from setuid programs, and more.
_PREFIXES = ("LD_", "GLIBC_", "GCONV_", "GETCONF_", "MALLOC_", "RES_", "RESOLV_", "NIS_", "MUSL_")
_NAMES = frozenset(("HOSTALIASES", "LANGUAGE", "LOCALDOMAIN", "LOCPATH", "NLSPATH", "TZDIR"))


def is_early(name: str) -> bool:
    """Whether a variable acts on a program by itself. No loader knows one whose name has other characters."""
    return (name in _NAMES or name.startswith(_PREFIXES)) and name.isascii() and name.isidentifier()


def set_later(setpriv: str, program: str, env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The words before a program that give it its early variables, and the environment to begin with.

    An operand of `env` with an equals sign is a variable: a program with one in its path needs another word before it.
    """
    early = [name for name in env if is_early(name)]
    if not early:
        return [], env
    prefix = "LATER_"
    while any(name.startswith(prefix) for name in env):
        prefix += "_"
    names = {name: f"{prefix}{number}" for number, name in enumerate(early)}
    begin = {names.get(name, name): value for name, value in env.items()}
    unset = [f"--unset={name}" for name in names.values()]
    split = "--split-string=" + " ".join(f"{name}=${{{other}}}" for name, other in names.items())
    return [ENV, *unset, split, *([setpriv, "--no-new-privs", "--"] if "=" in program else [])], begin


def hold_back(env: dict[str, str]) -> dict[str, str]:
    """The environment for a program of ours that stays root for a while: a job's variables have other names in it.

    None may act there. PATH too leads to programs of the job: Python looks for a compiler when it looks for a library.
    """
    own = {name: value for name, value in env.items() if name.startswith(OURS)}
    held = {HELD_BACK + name: value for name, value in env.items() if name not in own}
    return own | held | {HELD_BACK: "yes"}


def given_back(env: dict[str, str]) -> dict[str, str]:
    """The environment as the job has it, for what that program starts."""
    if HELD_BACK not in env:
        return env
    own = {name: value for name, value in env.items() if name.startswith(OURS) and HELD_BACK not in name}
    return own | {name.removeprefix(HELD_BACK): value for name, value in env.items() if _is_held(name)}


def _is_held(name: str) -> bool:
    return name.startswith(HELD_BACK) and name != HELD_BACK
