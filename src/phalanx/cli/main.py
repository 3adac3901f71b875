"""The command line, `phalanx <noun> <verb>` and short verbs for every day: every command by name, and how it is run.

A command's module is imported when the command is called, so that `phalanx ps` does not pay for `phalanx up`. A
function becomes a command by its signature, through Typer. A command that fails is reported with a hint on standard
error, and ends with the exit code that belongs to its error (`phalanx.errors` has the table).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from phalanx.cli.command_form import CommandLast, FileLists, OptionsOnce
from phalanx.cli.command_words import tell_unspelled, told_of
from phalanx.cli.exits import OutputClosed, discard_output, leave
from phalanx.cli.foreign_words import OURS
from phalanx.cli.output import tell_error
from phalanx.cli.session import CliSession, flags_before
from phalanx.cli.usage_errors import foreign_hint, plain, usage_hint
from phalanx.errors import PhalanxError

Entries = Mapping[str, "str | CommandGroup | Daemon"]
INTERRUPTED = 130


class CommandGroup:
    """A noun with its verbs."""

    def __init__(self, purpose: str, verbs: Entries) -> None:
        self.purpose = purpose
        self.verbs = verbs


class Daemon:
    """A command that runs as a daemon, and verbs about it."""

    def __init__(self, command: str, verbs: Entries) -> None:
        self.command = command
        self.verbs = verbs


_DAILY = {
    "submit": "submit:submit",
    "show": "job:show",
    "logs": "logs:logs",
    "exec": "exec:exec_command",
    "attach": "exec:attach",
    "port-forward": "port_forward:port_forward",
    "results": "results:results",
    "usage": "usage:usage",
    "files": "files:files",
    "cp": "files:cp",
    "wait": "wait:wait",
    "why": "why:why",
    "story": "story:story",
    "cancel": "cancel:cancel",
    "evict": "job:evict",
    "retry": "retry:retry",
    "resubmit": "retry:resubmit",
    "pause": "job:pause",
    "resume": "job:resume",
    "approve": "approve:approve",
    "deny": "approve:deny",
    "hold": "change:hold",
    "release": "change:release",
    "update": "change:update",
}


COMMANDS: Entries = {
    "up": "up:up",
    "down": "down:down",
    "run": "run:run",
    "alloc": "alloc:alloc",
    "apply": "apply:apply",
    "plan": "plan:plan",
    "ps": "ps:ps",
    "top": "top.command:top",
    "ui": "ui:ui",
    **_DAILY,
    "connect": "exec:attach",
    "forward": "port_forward:port_forward",
    "terminal": CommandGroup(
        "Work inside running tasks: the same as `attach` and `exec`.",
        {"attach": "exec:attach", "exec": "exec:exec_command"},
    ),
    "nodes": "node:nodes",
    "report": "report:report",
    "topology": "topology:topology",
    "cluster": "cluster:cluster",
    "status": "cluster:cluster",
    "doctor": "doctor:doctor",
    "job": CommandGroup("Manage jobs.", {"list": "ps:ps", **_DAILY}),
    "task": CommandGroup(
        "Manage tasks: the same commands, for one task of a job.", {"list": "ps:tasks_of", **_DAILY}
    ),
    "node": CommandGroup(
        "Manage nodes: show, drain, resume, elastic, remove.",
        {
            "list": "node:nodes",
            "show": "node:show",
            "drain": "node:drain",
            "resume": "node:resume",
            "elastic": "node:elastic",
            "lose": "node:lose",
            "remove": "node:remove",
            "ip-reserve": "overlay:reserve",
            "ip-release": "overlay:release",
            "ip-list": "overlay:listed",
            "ip-info": "overlay:info",
            "ip-available": "overlay:available",
        },
    ),
    "vps": CommandGroup(
        "Manage VPSs: long-lived tasks with an SSH server and files of their own.",
        {
            "create": "vps:create",
            "list": "vps:listed",
            "show": "vps:show",
            "status": "vps:show",
            "connect": "vps_connect:connect",
            "ssh-config": "vps_connect:ssh_config",
            "proxy": "vps_connect:proxy",
            "restart": "vps:restart",
            "snapshot": "vps_snapshots:snapshot",
            "snapshots": "vps_snapshots:snapshots",
            "restore": "vps_snapshots:restore",
            "stop": "vps:stop",
        },
    ),
    "gang": CommandGroup(
        "Manage gangs: jobs whose tasks start together or not at all.",
        {"list": "gang:gangs", "show": "gang:show", "why": "why:why", "evict": "job:evict"},
    ),
    "workflow": CommandGroup(
        "Manage workflows: stages that become jobs as their inputs are there.",
        {
            "submit": "workflow:submit",
            "example": "workflow:example",
            "list": "workflow:workflows",
            "show": "workflow:show",
            "graph": "workflow:graph",
            "wait": "workflow:wait",
            "story": "story:story",
            "cancel": "workflow:cancel",
            "retry": "workflow:retry",
        },
    ),
    "queue": CommandGroup(
        "Manage queues and their quotas.",
        {
            "list": "queue:queues",
            "show": "queue:show",
            "set": "queue:set_quota",
            "unset": "queue:unset_quota",
        },
    ),
    "token": CommandGroup(
        "Manage API tokens and their roles.",
        {
            "create": "token:create",
            "list": "token:tokens",
            "revoke": "token:revoke",
            "rotate": "token:rotate",
        },
    ),
    "login": CommandGroup(
        "Manage browsers that are logged in to the dashboard.",
        {"list": "login:logins", "end": "login:end_login"},
    ),
    "audit": "token:audit",
    "coordinator": "daemon:coordinator",
    "runner": Daemon("daemon:runner", {"stop": "runner_stop:stop"}),
    "config": CommandGroup(
        "Show settings and where each value comes from.",
        {
            "show": "config:show",
            "explain": "config:explain",
            "path": "config:path",
            "trust": "config_trust:trust",
            "untrust": "config_trust:untrust",
        },
    ),
    "store": CommandGroup(
        "Check, repair, migrate, back up and restore the cluster's state.",
        {
            "check": "store:check",
            "backup": "store:backup",
            "restore": "store:restore",
            "migrate": "store:migrate",
            "reopen": "store:reopen",
            "repair": "repair:repair",
        },
    ),
    "ca": CommandGroup(
        "Manage certificates: the cluster's own CA and what it issues.",
        {"init": "ca:init", "issue": "ca:issue", "show": "ca:show"},
    ),
    "density": CommandGroup(
        "Plot how many tasks were submitted and how many nodes were active.", {"plot": "density:plot"}
    ),
    "completion": "completion:completion",
    "version": "version:version",
}


# Other names of commands, which the list of all commands does not repeat: their help names them.
_ALIASES = {"connect", "forward"}  # of attach and port-forward


# After the first word of the user's command every option is the user's, with or without `--`.
_TAKES_A_COMMAND = {"submit:submit", "run:run", "plan:plan", "alloc:alloc"}


# The same, but our own options may also stand between the task and `--`, where users of kubectl write them.
_TAKES_A_COMMAND_LAST = {"exec:exec_command", "vps_connect:connect"}


# Options that name files take several, as a shell writes `-f *.yaml`.
_TAKES_FILES = {"apply:apply", "plan:plan", "topology:topology", "workflow:submit"}


class Catalogue(Mapping[str, Any]):
    """Names to commands, each made when it is asked for."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> Any:
        entry = self._entries[name]
        if isinstance(entry, CommandGroup):
            return LazyGroup(name=name, help=entry.purpose, commands=cast(Any, Catalogue(entry.verbs)))
        return _daemon(name, entry) if isinstance(entry, Daemon) else _command(name, entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LazyGroup(TyperGroup):
    """A group whose commands may be a Catalogue."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"rich_markup_mode": None})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


class Root(LazyGroup):
    """The group of all commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": Catalogue(COMMANDS)})

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in super().list_commands(ctx) if name not in _ALIASES]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosed from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A word of another scheduler is answered with ours; it is looked up only once it is none of ours."""
        if args and args[0] not in self.commands and (ours := OURS.get(args[0])) is not None:
            ctx.fail(f"No such command {args[0]!r}: use {ours}")
        return super().resolve_command(ctx, args)


def _function(entry: str) -> Any:
    module, _, function = entry.partition(":")
    return getattr(import_module(f"phalanx.cli.{module}"), function)


def _daemon(name: str, entry: Daemon) -> Any:
    """Without a verb it is the command itself."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"]}
    app.callback(invoke_without_command=True, context_settings=settings)(_function(entry.command))
    for verb, function in entry.verbs.items():
        assert isinstance(function, str)
        app.command(verb, context_settings=settings)(_function(function))
    made = typer.main.get_command(app)
    made.name = name
    return made


def _command(name: str, entry: str) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {
        "allow_interspersed_args": entry not in _TAKES_A_COMMAND,
        "help_option_names": ["-h", "--help"],
    }
    form = (
        CommandLast if entry in _TAKES_A_COMMAND_LAST else FileLists if entry in _TAKES_FILES else OptionsOnce
    )
    app.command(name, cls=form, context_settings=settings)(_function(entry))
    return typer.main.get_command(app)


app = typer.Typer(cls=Root, name="phalanx", rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
def root(
    ctx: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(help="Address of the cluster, http://host:port; several separated by commas."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File containing the API token.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="The cluster's CA certificate (ca.crt), for https.")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="State folder of the cluster on this machine.")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """A scheduler for AI work: all-or-nothing, topology-aware gang scheduling.

    Get started with `phalanx up`, then `phalanx run -- echo hello`.
    """
    ctx.obj = CliSession(flags_before(address, token_file, ca_file, state))
    if version:
        from phalanx import __version__

        print(f"phalanx {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def main() -> NoReturn:
    """Run the command line of this process."""
    leave(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = typer.main.get_command(app).main(list(args), prog_name="phalanx", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PhalanxError as error:
        tell_error(*told_of(error, args))
        return error.exit_code
    except typer.TyperException as error:
        tell_error(plain(error.format_message(), is_known=bool(foreign_hint(error))), usage_hint(error, args))
        return error.exit_code
    except UnicodeEncodeError:
        return tell_unspelled(args)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (OutputClosed, BrokenPipeError):
        return discard_output()
    except OSError as error:  # A folder that is gone, a disk that is full.
        tell_error(str(error), "")
        return 1
