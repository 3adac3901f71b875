"""What a task runs: its arguments, its variables and its folder, checked before anybody stores them.

The limits are those of the kernel that will be asked to start it, so that a task which could never start is
refused while its user is still looking. `field` is where the user wrote it, for the refusal to name.
"""

from __future__ import annotations

from phalanx.api.schema.fields import check_count, check_text, shown
from phalanx.core.model.job import Command
from phalanx.errors import BadRequest

ARGV_MAX = 4096
ARG_BYTES_MAX = 128 * 1024 - 1  # the kernel's limit for one string of exec, less its closing NUL
ARGV_BYTES_MAX = 1024 * 1024
ENV_MAX = 1000
ENV_BYTES_MAX = 1024 * 1024
PATH_BYTES_MAX = 4095


def read_command(
    command: list[str], shell: str | None, env: dict[str, str], cwd: str | None, field: str = ""
) -> Command:
    """The command of a group; `field` is put before each name, as in `groups[0].`."""
    if command and shell is not None:
        raise BadRequest(f"{field}command and {field}shell: give one of them, not both")
    if cwd is not None:
        check_cwd(cwd, f"{field}cwd")
    check_env(env, f"{field}env")
    # The user's string is one argument of the shell, so nothing of ours is ever read as shell words.
    argv = tuple(command) if shell is None else ("/bin/sh", "-c", shell)
    check_argv(argv, f"{field}command" if shell is None else f"{field}shell")
    return Command(argv, env, cwd)


def check_argv(argv: tuple[str, ...], field: str) -> None:
    if not argv or not argv[0] or (field.endswith("shell") and not argv[-1]):
        raise BadRequest(
            f"{field}: nothing to run: give command (a list such as ['python', 'train.py'])"
            " or shell (one string for /bin/sh)"
        )
    check_count(field, len(argv), ARGV_MAX)
    total = sum([check_text(field, each, ARG_BYTES_MAX) for each in argv])
    if total > ARGV_BYTES_MAX:
        raise BadRequest(f"{field}: {total} bytes in all are too many, at most {ARGV_BYTES_MAX} are allowed")


def check_env(env: dict[str, str], field: str) -> None:
    check_count(field, len(env), ENV_MAX)
    total = 0
    for name, value in env.items():
        if not name or "=" in name:
            raise BadRequest(
                f"{field}: {shown(name)} is not a variable name: it must not be empty or hold '='"
            )
        total += check_text(f"{field}[{shown(name)}]", f"{name}={value}", ARG_BYTES_MAX)
    if total > ENV_BYTES_MAX:
        raise BadRequest(f"{field}: {total} bytes in all are too many, at most {ENV_BYTES_MAX} are allowed")


def check_cwd(cwd: str, field: str) -> None:
    check_text(field, cwd, PATH_BYTES_MAX)
    if not cwd.startswith("/"):
        raise BadRequest(f"{field}: {shown(cwd)} is not an absolute path: begin it with '/'")
