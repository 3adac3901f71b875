"""Variables that act on a program before its first instruction: a job's own must not act on one that is still root.

A task of an account is started through `setpriv`, which is root until its last step, and the loader of it would load
whatever LD_PRELOAD of the job names. So such variables go by other names until the account is taken on; then `env`
gives them their own again. Their values are in no command, which every account of the machine could read. The process
that makes a container never takes on an account; it gives such variables their names inside the container only.
"""

from __future__ import annotations

ENV = "/usr/bin/env"
PREFIX = "PHALANX_LATER_"
# What loaders and libraries of C read by themselves: glibc's own list of what is taken from setuid programs, and more.
_PREFIXES = ("LD_", "GLIBC_", "GCONV_", "GETCONF_", "MALLOC_", "RES_", "RESOLV_", "NIS_", "MUSL_")
_NAMES = frozenset(("HOSTALIASES", "LANGUAGE", "LOCALDOMAIN", "LOCPATH", "NLSPATH", "TZDIR"))


def is_early(name: str) -> bool:
    """Whether a variable acts on a program by itself. No loader knows one whose name has other characters."""
    return (name in _NAMES or name.startswith(_PREFIXES)) and name.isascii() and name.isidentifier()


def held_back(env: dict[str, str]) -> dict[str, str]:
    """An environment in which early variables go by other names."""
    return {f"{PREFIX}{name}" if is_early(name) else name: value for name, value in env.items()}


def set_later(setpriv: str, program: str, env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The words before a program that give it its early variables, and the environment to begin with.

    An operand of `env` with an equals sign is a variable: a program with one in its path needs another word before it.
    """
    early = [name for name in env if is_early(name)]
    if not early:
        return [], env
    unset = [f"--unset={PREFIX}{name}" for name in early]
    split = "--split-string=" + " ".join(f"{name}=${{{PREFIX}{name}}}" for name in early)
    more = [setpriv, "--no-new-privs", "--"] if "=" in program else []
    return [ENV, *unset, split, *more], held_back(env)
