"""The methods of both clients by which work is submitted: `submit`, `gang` and `apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any, Never, Unpack, cast

from phalanx.api.schema.apply import ApplyReply, ApplyRequest
from phalanx.api.schema.groupspec import GatherRules
from phalanx.api.schema.jobs import JobView
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.submit_fields import Word
from phalanx.client import calls
from phalanx.client.calls import Spec
from phalanx.client.ids import AnyId
from phalanx.client.job_calls import AsyncJobCalls, JobCalls
from phalanx.client.job_handles import (
    AsyncJobHandle,
    JobHandle,
    async_handle_of,
    async_job_handle,
    handle_of,
    job_handle,
)
from phalanx.client.submit_names import GangKeywords, SubmitKeywords, read_command, read_keywords
from phalanx.client.sweeps import AsyncSweepCalls, SweepCalls

FIELDS = """
Program
    command: list of str, or shell: str        what is run; shell is given to /bin/sh
    env, cwd                                   variables; folder (the current one if not given)
    export, exported                           which variables of this process go along; those that do
    image, mounts (mount)                      run in a container; what of the node it sees
    kind                                       "command", or "vps" for a VPS without SSH
Resources of each task
    cores, memory, gpus, gpu_type, gpu_memory  1 core, no limit and no GPU if not given; "16GiB", 0.5
    targets (target), required_gpus            nodes, such as "n1", "n1:0" or "n1::0,1"; one job for each
    labels (label), require_isolation          what the node must have
    nodes, exclude, exclusive                  only these nodes, none of these; a node for each task alone
    spread                                     tasks on as many different nodes as there is room on
    network, ip_token, subdomain, names        an address of its own; host names
Tasks
    array, at_once                             "1-100%10": one task for each index, ten at a time
    params, rows                               a sweep: `params={"lr": "0.1,0.01"}`, or rows of any number
    each_line, from_csv, from_json             a file: a task for each line, row, or object
    tasks, min, gang_wait, gather              a gang: all start together, or at least `min`; where
Order
    queue, priority, begin, no_queue, allow_infeasible
    after                                      jobs that come first: a handle, a number, "17:any", or several
    hold                                       nothing of it starts before `client.release`
    preemption, evictable, min_run             whom it may evict; whether and when it may be
Time and retries
    time_limit, grace                          "1h30m" or seconds
    max_retries (retries), max_attempts
Bookkeeping
    name, tags (tag), request_id
    split_output                               two logs, of standard output and of standard error
    attached                                   a program reads the output while it is written
    stdin                                      a program gives the first task standard input (`stdin_session`)
"""


class SubmitCalls(SweepCalls):
    """Work for a cluster, from a program that waits."""

    def submit(
        self,
        request: SubmitRequest | Sequence[Word] | None = None,
        /,
        *more: Never,
        **fields: Unpack[SubmitKeywords],
    ) -> JobHandle:
        """Submit a command with its fields, or a whole `SubmitRequest`. It is durable when this returns.

            job = client.submit(["python", "train.py"], gpus=2, retries=1)
            job.wait(check=True)
            print(job.result(), job.logs())

        Names are those of the command line, `--gpu-type` being `gpu_type`; what stands in brackets is another name of
        the same field.
        """
        whole = read_command(request, more, cast(dict[str, Any], fields))
        return job_handle(self._submitted(whole, read_keywords(fields)), cast(JobCalls, self))

    def retry(self, job: AnyId, *, cancelled: bool = False, request_id: str | None = None) -> JobHandle:
        """Run the failed tasks of an ended job again, or that of `job.index` alone: a new job with the same indexes."""
        again = super().retry(job, cancelled=cancelled, request_id=request_id)
        return job_handle(again, cast(JobCalls, self))

    def resubmit(
        self,
        job: AnyId,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        request_id: str | None = None,
        **fields: Any,
    ) -> JobHandle:
        """Submit a job once more with changes, such as `gpus=2, env={"SEED": 7}, params={"lr": "0.1,0.2"}`, or as a
        dict: `{"gpus": 2, "env.SEED": "7", "param.lr": "0.1,0.2"}`.
        """
        return job_handle(
            super().resubmit(job, changes, request_id=request_id, **fields), cast(JobCalls, self)
        )

    def handle(self, id: AnyId) -> JobHandle:
        """A handle on a job that was submitted before, by its number, id or name: to wait for it, or read its log."""
        view: JobView = self._ask(calls.job(id))
        return handle_of(view, cast(JobCalls, self))

    def gang(
        self,
        command: Sequence[Word],
        tasks: int,
        *,
        gather: GatherRules = (),
        **fields: Unpack[GangKeywords],
    ) -> JobHandle:
        """Submit tasks that start together or not at all: `gang([…], 16, min=12, gpus=8, gather='rack:must')`."""
        return job_handle(
            self._ask(calls.gang(command, tasks, gather, read_keywords(fields, "gang"))), cast(JobCalls, self)
        )

    def apply(self, request: ApplyRequest | Spec | Sequence[Spec], /) -> ApplyReply:
        """Submit jobs, each a `JobSpec` or what a job file has, as a dict: all of them are accepted, or none."""
        reply: ApplyReply = self._ask(calls.apply(request))
        return reply


class AsyncSubmitCalls(AsyncSweepCalls):
    """The same for programs that use asyncio."""

    async def submit(
        self,
        request: SubmitRequest | Sequence[Word] | None = None,
        /,
        *more: Never,
        **fields: Unpack[SubmitKeywords],
    ) -> AsyncJobHandle:
        """Submit a command with its fields, or a whole `SubmitRequest`. It is durable when this returns.

            job = await client.submit(["python", "train.py"], gpus=2, retries=1)
            await job.wait(check=True)

        Names are those of the command line, `--gpu-type` being `gpu_type`; what stands in brackets is another name of
        the same field.
        """
        whole = read_command(request, more, cast(dict[str, Any], fields))
        reply = await self._submitted(whole, read_keywords(fields))
        return async_job_handle(reply, cast(AsyncJobCalls, self))

    async def retry(
        self, job: AnyId, *, cancelled: bool = False, request_id: str | None = None
    ) -> AsyncJobHandle:
        """Run the failed tasks of an ended job again, or that of `job.index` alone: a new job with the same indexes."""
        again = await super().retry(job, cancelled=cancelled, request_id=request_id)
        return async_job_handle(again, cast(AsyncJobCalls, self))

    async def resubmit(
        self,
        job: AnyId,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        request_id: str | None = None,
        **fields: Any,
    ) -> AsyncJobHandle:
        """Submit a job once more with changes, such as `gpus=2, env={"SEED": 7}, params={"lr": "0.1,0.2"}`, or as a
        dict: `{"gpus": 2, "env.SEED": "7", "param.lr": "0.1,0.2"}`.
        """
        again = await super().resubmit(job, changes, request_id=request_id, **fields)
        return async_job_handle(again, cast(AsyncJobCalls, self))

    async def handle(self, id: AnyId) -> AsyncJobHandle:
        """A handle on a job that was submitted before, by its number, id or name: to wait for it, or read its log."""
        view: JobView = await self._ask(calls.job(id))
        return async_handle_of(view, cast(AsyncJobCalls, self))

    async def gang(
        self,
        command: Sequence[Word],
        tasks: int,
        *,
        gather: GatherRules = (),
        **fields: Unpack[GangKeywords],
    ) -> AsyncJobHandle:
        """Submit tasks that start together or not at all: `gang([…], 16, min=12, gpus=8, gather='rack:must')`."""
        made = calls.gang(command, tasks, gather, read_keywords(fields, "gang"))
        return async_job_handle(await self._ask(made), cast(AsyncJobCalls, self))

    async def apply(self, request: ApplyRequest | Spec | Sequence[Spec], /) -> ApplyReply:
        """Submit jobs, each a `JobSpec` or what a job file has, as a dict: all of them are accepted, or none."""
        reply: ApplyReply = await self._ask(calls.apply(request))
        return reply


for _each in (SubmitCalls, AsyncSubmitCalls):  # `help(Client.submit)` lists the fields
    _each.submit.__doc__ = f"{dedent(f'        {_each.submit.__doc__}')}\n{FIELDS}"
