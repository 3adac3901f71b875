"""`phalanx submit`: submit work and return at once, or wait for its end.

`run` takes the same options, so they are written once, as a struct whose fields are the options. Whether they make
sense is decided by the coordinator; only what it could not see is checked here.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct, structs

from phalanx.api.schema.exports import NONE
from phalanx.api.schema.groupspec import parse_gather
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.cli.command_words import (
    check_nodes,
    check_words,
    refuse_number_after,
    tell_bare_seconds,
    tell_decimal_memory,
    tell_literal_index,
    tell_lone_range,
    tell_missing,
)
from phalanx.cli.completion import node_names
from phalanx.cli.environment import (
    EnvFileOption,
    EnvOption,
    ExportOption,
    exported_variables,
    given_variables,
)
from phalanx.cli.labels import label
from phalanx.cli.option_form import with_options
from phalanx.cli.output import OutputOption, Table, emit, note
from phalanx.cli.session import TimeoutOption, deadline, read_cores, read_memory, session
from phalanx.cli.values import pair, pairs, spelled
from phalanx.cli.wait import await_submitted, exit_code, tell_end
from phalanx.cli.words import listed
from phalanx.client.sweep_files import Read, each_line, from_csv, from_json
from phalanx.settings import Output


class SubmitOptions(Struct, kw_only=True):
    """Each field is an option, or the argument `command`."""

    command: Annotated[
        list[str] | None, typer.Argument(metavar="CMD...", show_default=False, help="Command to run.")
    ] = None
    target: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            help="Node to run on, host[:numa][::gpus]; repeat for one task on each.",
            autocompletion=node_names,
        ),
    ] = None
    cores: Annotated[
        float,
        typer.Option(
            "-c",
            "--cores",
            parser=read_cores,
            metavar="CORES",
            help="Cores per task, such as 2, 0.5 or 500m; 0 = unlimited.",
        ),
    ] = 1
    memory: Annotated[
        str,
        typer.Option(
            *("-m", "--memory"),
            parser=read_memory,
            metavar="SIZE",
            help="Memory per task, such as 16GiB; a plain number is bytes, from 1 MiB on.",
        ),
    ] = "0"
    gpus: Annotated[int, typer.Option(min=0, help="GPUs per task.")] = 0
    gpu_type: Annotated[str | None, typer.Option(help="GPU model, such as h100; * stands for any text.")] = (
        None
    )
    gpu_memory: Annotated[str, typer.Option(help="Minimum memory of each GPU, such as 80GiB.")] = "0"
    priority: Annotated[int, typer.Option(help="Higher priorities go first.")] = 0
    queue: Annotated[str, typer.Option("-q", "--queue", help="Queue to submit to.")] = "default"
    array: Annotated[
        str | None,
        typer.Option(
            help="Array of tasks: 1-100%4 is 100 tasks, 4 at a time; {i} in CMD is the index of the task,"
            " in program code $PHALANX_ARRAY_INDEX."
        ),
    ] = None
    tasks: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of tasks; several start together or not at all (a gang). Each has PHALANX_RANK,"
            " PHALANX_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and PET_* for a bare torchrun, which sets RANK;"
            " with at most one GPU each they have RANK themselves.",
        ),
    ] = 1
    min: Annotated[
        int, typer.Option(min=0, help="Minimum number of members a gang starts with; 0 = all.")
    ] = 0
    gather: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER[:must[:N]]",
            help="Topology constraint: rack (preferred), rack:must (required), rack:must:4 (multiples of 4).",
        ),
    ] = None
    gang_wait: Annotated[
        str | None,
        typer.Option(help="How long placed members wait for the others at the barrier.", show_default="60s"),
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:WHEN][:each]",
            help="Start after another job, WORKFLOW or WORKFLOW:STAGE completed, or WHEN: any (it ended), failed,"
            " started; of arrays, each task after its own (each). Repeatable.",
        ),
    ] = None
    begin: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start no earlier: 18:00, tomorrow, 'tomorrow 8:00', 2h (from now), 2027-01-31T08:00 (or with zone).",
        ),
    ] = None
    name: Annotated[str, typer.Option("-n", "--name", help="Name of the job.")] = ""
    label: Annotated[
        list[str] | None,
        typer.Option("-l", "--label", metavar="K=V", help="Label the node must have; repeatable."),
    ] = None
    require_isolation: Annotated[
        bool,
        typer.Option(
            "--require-isolation",
            help="Only nodes that hold tasks to all that they were granted; see `nodes`.",
        ),
    ] = False
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE[,NODE]", help="Only on these nodes; repeatable.", autocompletion=node_names
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE[,NODE]", help="Not on these nodes; repeatable.", autocompletion=node_names
        ),
    ] = None
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive", help="Each task has an empty node for itself, with all its cores and GPUs."
        ),
    ] = False
    spread: Annotated[
        bool, typer.Option("--spread", help="Tasks go to as many different nodes as there is room on.")
    ] = False
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Tag of the job, for `ps -l`; repeatable."),
    ] = None
    env: EnvOption = None
    env_file: EnvFileOption = None
    export: ExportOption = None
    cwd: Annotated[
        Path | None, typer.Option(help="Working directory of the task.", show_default="this folder")
    ] = None
    time_limit: Annotated[
        str | None,
        typer.Option(
            help="Stop the task after this long: 90s, 1h30m, 2:30 (hours:minutes); a number is seconds.",
            callback=tell_bare_seconds,
        ),
    ] = None
    grace: Annotated[str | None, typer.Option(help="Time between SIGTERM and SIGKILL.")] = None
    retries: Annotated[
        int | None,
        typer.Option(
            min=0, help="How often a failed task is retried, not after a timeout (default: 3, for `run` 0)."
        ),
    ] = None
    preemption: Annotated[
        Literal["lower", "never"], typer.Option(help="What it may preempt: jobs of lower priority, or none.")
    ] = "lower"
    evictable: Annotated[
        bool, typer.Option("--evictable/--not-evictable", help="Whether it may be preempted.")
    ] = True
    min_run: Annotated[
        str | None, typer.Option(help="Minimum run time before it may be preempted.", show_default="0s")
    ] = None
    network: Annotated[
        Literal["node", "overlay"],
        typer.Option(help="overlay: each task has an address of its own in the overlay network."),
    ] = "node"
    ip_token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Token of a reserved address, from `phalanx node ip-reserve`."),
    ] = None
    names: Annotated[
        bool, typer.Option("--names", help="Tasks of the array know each other by host name.")
    ] = False
    subdomain: Annotated[
        str, typer.Option(help="Domain of the members' host names.", show_default="the job's name")
    ] = ""
    image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE",
            help="Run it in a container: a name in a registry, /path/image.tar on the node, or rootfs:/path.",
            show_default="none",
        ),
    ] = ""
    mount: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SRC:DST[:ro]",
            help="What of the node the container sees, where the node allows it; repeatable.",
        ),
    ] = None
    split_output: Annotated[
        bool,
        typer.Option(
            "--split-output",
            help="Keep standard output and standard error in two logs, for `logs --stdout` and `--stderr`.",
        ),
    ] = False
    shell: Annotated[bool, typer.Option("--shell", help="Run CMD, one string, with /bin/sh.")] = False
    no_queue: Annotated[bool, typer.Option("--no-queue", help="Reject the job if it cannot start now.")] = (
        False
    )
    request_id: Annotated[
        str | None,
        typer.Option(help="Idempotency key: a repeated request with the same key is not done twice."),
    ] = None
    allow_infeasible: Annotated[
        bool,
        typer.Option("--allow-infeasible", help="Queue it even if no node of the cluster could ever run it."),
    ] = False

    def request(self) -> SubmitRequest:
        """The same in the words of the API."""
        words = [spelled(word, "CMD") for word in self.command or []]
        check_words(words, is_shell=self.shell, in_image=bool(self.image))
        if "--" in (self.target or []):  # run -it -- bash
            raise typer.BadParameter("-t takes a node; phalanx alloc opens a shell", param_hint="-t")
        check_nodes([*(self.nodes or []), *(self.exclude or [])], self.target or [])
        folder, exported = self._folder(), exported_variables(self.export, in_image=bool(self.image))
        env = given_variables(self.env, self.env_file)
        if not self.image:
            tell_missing([] if self.shell else words, folder, exported | env)
        refuse_number_after(words, self.after or [])
        if not self.shell:
            tell_literal_index(words)
        tell_decimal_memory(self.memory)
        return SubmitRequest(
            command=[] if self.shell else words,
            shell=words[0] if self.shell else None,
            targets=self.target or [],
            env=env,
            exported=exported,
            labels=pairs(self.label, "--label"),
            tags=pairs(self.tag, "--tag"),
            gather=[parse_gather(each) for each in self.gather or []],
            after=listed(self.after),
            nodes=listed(self.nodes),
            exclude=listed(self.exclude),
            cwd=folder,
            mounts=self.mount or [],
            max_retries=self.retries,
            min_run=self.min_run or 0,
            **{name: getattr(self, name) for name in _SAME},
        )

    def _folder(self) -> str | None:
        """The folder of the task: of the node, or inside the image, which has one of its own."""
        if self.image:
            return None if self.cwd is None else str(self.cwd)
        return str(Path.cwd() / (self.cwd or ""))


# The fields that have the same name and meaning on both sides.
_SAME = (
    *("cores", "memory", "gpus", "gpu_type", "gpu_memory", "priority", "queue", "array", "name"),
    *("time_limit", "grace", "no_queue", "allow_infeasible"),
    *("tasks", "min", "gang_wait", "preemption", "evictable", "request_id", "require_isolation"),
    *("exclusive", "spread"),
    *("network", "ip_token", "names", "subdomain", "image", "split_output", "begin"),
)


takes_options = with_options(SubmitOptions)


class SweepOptions(SubmitOptions, kw_only=True):
    """The options of `submit`: a sweep submits one task for each combination, or for each row of a file."""

    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Parameter of a sweep: lr=0.1,0.01 or seed=1..5; {lr} in CMD is its value. Repeatable.",
        ),
    ] = None
    each_line: Annotated[
        str | None, typer.Option(metavar="FILE", help="One task for each line, {line} in CMD; - is stdin.")
    ] = None
    from_csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="One task for each row; columns are parameters.")
    ] = None
    from_json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="One task for each object of a list, or of each line."),
    ] = None
    hold: Annotated[
        bool, typer.Option("-H", "--hold", help="Hold it: nothing starts before `phalanx release`.")
    ] = False
    limit: Annotated[int, typer.Option(min=0, help="Most tasks of a sweep that run at once.")] = 0

    def sweep(self) -> tuple[SubmitRequest, Read | None]:
        """The request, and the rows of a file that it goes over."""
        params: dict[str, str] = {}
        for text in self.param or []:
            name, values = pair(text, "--param")
            if name in params:
                raise typer.BadParameter(f"{name!r} is given twice", param_hint="--param")
            params[name] = tell_lone_range(name, values)
        files = [
            (read, file)
            for read, file in (
                (partial(each_line, say=note), self.each_line),
                (from_csv, self.from_csv),
                (from_json, self.from_json),
            )
            if file is not None
        ]
        if len(files) > 1:
            raise typer.BadParameter("give one of --each-line, --from-csv and --from-json")
        request = structs.replace(self.request(), params=params, at_once=self.limit, hold=self.hold)
        return request, files[0][0](files[0][1]) if files else None


@with_options(SweepOptions)
def submit(
    ctx: typer.Context,
    options: SweepOptions,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends and exit with its exit code.")
    ] = False,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
) -> int:
    """Submit a job and return immediately.

    `phalanx submit -c 4 --gpus 1 -- python train.py` prints the number of the accepted job. With several
    targets there is one task on each; rejected targets are reported on standard error, and the exit
    code is then 1. With `--param lr=0.1,0.01 -- python train.py --lr {lr}` there is one task for each value.
    """
    here = session(ctx)
    (request, rows), chosen, until = options.sweep(), here.output(output), deadline(timeout)
    client = here.client()
    # What is exported is in the request.
    reply = client.submit_rows(request, *rows, export=NONE) if rows else client.submit(request, export=NONE)
    for warning in reply.warnings:
        note(f"warning: {warning}")
    for failed in reply.failed_targets:
        note(f"refused {failed.target}: {failed.detail} ({failed.reason})")
    if not wait:
        _show(reply, chosen)
        return int(bool(reply.failed_targets))
    if chosen in {"table", "wide"}:
        _show(reply, chosen)
        sys.stdout.flush()
    views = await_submitted(client, reply.accepted, until)
    tell_end(views, chosen)
    return exit_code(views) or int(bool(reply.failed_targets))


def _show(reply: SubmitReply, output: Output) -> None:
    names = [label(each) for each in reply.accepted]
    emit(reply, output, names, lambda wide: _table(reply) if wide else names)


def _table(reply: SubmitReply) -> Table:
    table = Table("ID", "TASKS", "TARGET", "BATCH", "LONG ID", narrows={"TARGET": 10, "BATCH": 13})
    for each in reply.accepted:
        table.add(label(each), each.tasks, each.target, label(reply.accepted[0]), each.id)
    return table
