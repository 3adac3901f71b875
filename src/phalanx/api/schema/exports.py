"""Which variables of a caller's environment its tasks get: chosen by the client, checked again by the coordinator.

Never exported is what belongs to the caller's session, machine or account, and what would tell a task that it is
another one: whoever submits from inside a task, of ours or of another scheduler, must not hand on that task's rank.
Variables that are given to a job by name (`-e`, `--env-file`) are not asked about here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from phalanx.api.schema.fields import ENV_MAX, check_env, shown
from phalanx.errors import BadRequest

ALL, NONE = "ALL", "NONE"
EXPORTED_BYTES_MAX = 512 << 10  # a request may have a mebibyte in all
_PREFIXES = (
    *("PHALANX_", "KRISHIV_", "BASH_FUNC_"),  # ours, and functions of bash
    *(
        "SLURM_",
        "SLURMD_",
        "SBATCH_",
        "SRUN_",
        "PMI_",
        "PMIX_",
        "OMPI_COMM_",
        "PET_",
        "TORCHELASTIC_",
    ),  # of tasks
    *("SSH_", "XDG_SESSION_", "DBUS_", "TMUX", "SUDO_"),  # of a session
)
_NAMES = frozenset((
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("HOME", "USER", "LOGNAME", "SHELL", "MAIL"),  # of the account that the task has
    *("_", "PWD", "OLDPWD", "SHLVL", "XDG_RUNTIME_DIR", "STY", "WINDOWID", "DISPLAY", "WAYLAND_DISPLAY"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK"),
    *("ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_INDEX", "JOB_COMPLETION_INDEX", "JOB_COMPLETION_COUNT"),
    *("REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS", "GLOBAL_REPLICAS"),
))  # fmt: skip
# Paths of the caller's machine, and what makes its virtual environments: an image has its own.
_OF_THE_HOST = re.compile(
    "PATH|MANPATH|INFOPATH|CPATH|PKG_CONFIG_PATH|TMPDIR|TEMP|TMP|VIRTUAL_ENV(_PROMPT)?|CONDA_.*|_CE_.*|PYTHON.*"
    "|LD_.*|LIBRARY_PATH|UV_.*|PYENV_.*|XDG_.*|LOADEDMODULES|_LMFILES_.*|MODULE.*|LMOD_.*|_ModuleTable.*|SHELL|EDITOR|PAGER"
)


def chosen(
    export: str | Iterable[str], environment: Mapping[str, str], *, in_image: bool = False
) -> tuple[dict[str, str], list[str]]:
    """The variables to export, and those of ALL that cannot travel because they are not UTF-8.

    `export` is ALL, NONE or names. Who names a variable that is not set, or is never exported, is told so.
    """
    names = _names(export)
    if names == [NONE] or not names:
        return {}, []
    if names != [ALL]:
        return {name: _named(name, environment) for name in names}, []
    given = {name: text for name, text in environment.items() if is_exported(name, in_image=in_image)}
    odd = [name for name, text in given.items() if not _is_text(name + text)]
    for name in odd:
        del given[name]
    check_exported(given)
    return given, odd


def is_exported(name: str, *, never: Sequence[str] = (), in_image: bool = False) -> bool:
    """Whether a variable of a whole environment is; `never` are names and prefixes with a star."""
    if name in _NAMES or name.startswith(_PREFIXES) or any(_matches(name, each) for each in never):
        return False
    return not (in_image and _OF_THE_HOST.fullmatch(name))


def accepted(exported: dict[str, str], never: Sequence[str]) -> dict[str, str]:
    """What the coordinator takes of what a client sent: nothing that the operator, or we, never export."""
    return {name: text for name, text in exported.items() if is_exported(name, never=never)}


def inside_image(exported: dict[str, str]) -> dict[str, str]:
    """What of it makes sense inside an image."""
    return {name: text for name, text in exported.items() if not _OF_THE_HOST.fullmatch(name)}


def check_exported(exported: dict[str, str], field: str = "export") -> None:
    """Refuse an environment that is too large, with the name of what it is too large by."""
    size = sum(len(name) + len(text) + 1 for name, text in exported.items())
    if len(exported) <= ENV_MAX and size <= EXPORTED_BYTES_MAX:
        check_env(exported, field)
        return
    name = max(exported, key=lambda each: len(exported[each]))
    raise BadRequest(
        f"{field}: {len(exported)} variables with {size} characters are too many, at most {ENV_MAX} with"
        f" {EXPORTED_BYTES_MAX} bytes can be exported; the longest is {shown(name)} with {len(exported[name])}",
        hint="unset what tasks do not need, or name what they do: --export PATH,VIRTUAL_ENV",
    )


def _names(export: str | Iterable[str]) -> list[str]:
    texts = export.split(",") if isinstance(export, str) else export
    names = [text.strip() for text in texts if text.strip()]
    if len(names) == 1 and names[0].upper() in (ALL, NONE):
        return [names[0].upper()]
    if wrong := [name for name in names if name.upper() in (ALL, NONE) or "=" in name]:
        hint = "a variable with a value is given with -e NAME=VALUE" if "=" in wrong[0] else ""
        raise BadRequest(f"export: {shown(wrong[0])}: give ALL, NONE, or names of variables", hint=hint)
    return names


def _named(name: str, environment: Mapping[str, str]) -> str:
    if not is_exported(name):
        raise BadRequest(
            f"export: {name[:80]} is never exported: it belongs to your session, your account or another task",
            hint=f"-e {name[:80]}=VALUE gives it to the task",
        )
    return passed(name, environment, "export")


def passed(name: str, environment: Mapping[str, str], field: str) -> str:
    """The value of a variable that is asked for by name."""
    text = environment.get(name)
    if text is None:
        raise BadRequest(
            f"{field}: {shown(name)} is not set here", hint=f"-e {name[:80]}=VALUE sets it for the task"
        )
    if not _is_text(name + text):
        raise BadRequest(f"{field}: the value of {shown(name)} is not UTF-8, so it cannot be sent")
    return text


def _matches(name: str, listed: str) -> bool:
    return name.startswith(listed[:-1]) if listed.endswith("*") else name == listed


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
