"""A runner made of runners.proto alone (pip install grpcio-tools). Its tasks end with it; it serves no logs.

python -m grpc_tools.protoc -I proto/phalanx/v1 --python_out=. --grpc_python_out=. runners.proto
export KRISHIV_EXECUTOR_TASK_BEARER_TOKEN=$(cat ~/.local/state/phalanx/node-credentials)
PYTHONPATH=. python examples/runner.py my-node 127.0.0.1:7435 [another coordinator ...]
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import count, cycle
from types import SimpleNamespace

import grpc
import runners_pb2 as pb
import runners_pb2_grpc as stubs


class Runner:
    def __init__(self, node):
        self.node, self.life, self.epoch, self.generation = node, os.urandom(8).hex(), 0, 0
        self.heartbeat_s, self.self_fence_s, self.is_welcome, self.lease_until = 5.0, 20.0, False, 0.0
        self.briefs, self.lanes, self.out = {}, {}, asyncio.Queue()
        self.attempts = {}  # by key, until a coordinator has taken note of their end
        self.known = set()  # keys of what was ever started or stopped here: nothing is started twice
        self.later, self.beating = asyncio.get_running_loop().call_later, asyncio.create_task(self.beat())

    async def session(self, address):  # one stream in each direction, until one side has enough
        out = self.out = asyncio.Queue()
        self.is_welcome, self.hello_at, self.seen_at = False, time.monotonic(), 0.0
        me = {"node": self.node, "incarnation": self.life, "origin": os.getcwd(), "held": self.held()}
        has = pb.Capacity(cores=os.cpu_count(), memory_bytes=os.sysconf("SC_PHYS_PAGES") * 4096)
        self.out.put_nowait(pb.FromRunner(hello=pb.Hello(version=3, epoch=self.epoch, capacity=has, **me)))
        shown = (("authorization", f"Bearer {os.environ['KRISHIV_EXECUTOR_TASK_BEARER_TOKEN']}"),)
        async with grpc.aio.insecure_channel(address) as channel:
            call = stubs.RunnersStub(channel).Connect((await out.get() for _ in count()), metadata=shown)
            while (said := await asyncio.wait_for(call.read(), 3 + self.heartbeat_s)) is not grpc.aio.EOF:
                self.hear(said.WhichOneof("message"), getattr(said, said.WhichOneof("message")))

    async def beat(self):
        """Heartbeats, while there is somebody to hear them. When the lease is over, the tasks are ended."""
        while True:
            await asyncio.sleep(min(1.0, self.heartbeat_s))
            if self.is_welcome:
                more = {"sent_at": time.monotonic(), "seen_at": self.seen_at, "generation": self.generation}
                self.out.put_nowait(pb.FromRunner(beat=pb.Beat(epoch=self.epoch, held=self.held(), **more)))
            for attempt in self.attempts.values():
                self.tell(attempt)
                if time.monotonic() > self.lease_until:
                    self.halt(attempt, pb.WHY_FENCED, 0)

    def held(self):
        return [pb.Held(key=each.start.key, phase=each.phase) for each in self.attempts.values()]

    def report(self, **report):
        if self.is_welcome:  # what happens before that is told after it
            said = pb.Reports(epoch=self.epoch, generation=self.generation, reports=[pb.Report(**report)])
            self.out.put_nowait(pb.FromRunner(reports=said))

    def tell(self, attempt):
        if attempt.exit is not None:
            self.report(ended=pb.Ended(key=attempt.start.key, exit=attempt.exit))
        elif attempt.phase == pb.PHASE_READY:
            self.report(ready=pb.Ready(key=attempt.start.key))

    def hear(self, what, said):
        if what == "rejected" and not said.retry:
            sys.exit(f"rejected: {said.code}: {said.message}")
        elif what == "dispositions":
            for item in said.items:  # a report that was not judged is kept
                if item.disposition not in (pb.DISPOSITION_STALE_EPOCH, pb.DISPOSITION_STALE_LEASE):
                    self.attempts.pop(item.key.SerializeToString(), None)
        elif what == "welcome" and said.epoch >= self.epoch:
            self.is_welcome, self.epoch, self.generation = True, said.epoch, said.generation
            self.heartbeat_s, self.self_fence_s = said.heartbeat_s, said.self_fence_s
            self.lease_until = self.hello_at + said.self_fence_s
        elif what == "beat_ack" and said.epoch >= self.epoch:
            self.lease_until, self.seen_at = said.sent_at + self.self_fence_s, said.at
        elif what == "orders" and said.epoch >= self.epoch:
            for order in said.orders:
                self.order(order.WhichOneof("order"), getattr(order, order.WhichOneof("order")))

    def order(self, what, said):
        attempt = self.attempts.get(key := said.key.SerializeToString()) if hasattr(said, "key") else None
        if what == "brief":
            self.briefs[said.job, said.group] = said
        elif what in ("start", "stop") and key not in self.known:
            start, why = (said, 0) if what == "start" else (pb.Start(key=said.key, lane=-1), said.why)
            new = SimpleNamespace(start=start, phase=pb.PHASE_QUEUED, stop=why, exit=None, process=None)
            new.go, self.attempts[key] = asyncio.Event(), new
            self.known.add(key)
            self.lanes[start.lane] = asyncio.create_task(self.run(new, self.lanes.get(start.lane)))
        elif attempt and what == "stop":
            self.halt(attempt, said.why, said.grace_s)
        elif attempt and what == "go":
            attempt.go.set()
        elif attempt and what != "start":
            self.signal(attempt, signal.SIGSTOP if what == "pause" else signal.SIGCONT)

    async def run(self, attempt, before):  # after the one before it in its lane; of a gang, after `go`
        start, code = attempt.start, None
        await asyncio.gather(*filter(None, [before]))
        if start.formation and not attempt.stop:
            attempt.phase = pb.PHASE_READY
            self.tell(attempt)
            await attempt.go.wait()
        if not attempt.stop:
            code = await self.execute(attempt, start, self.briefs[start.key.job, start.group])
        by_code = pb.WHY_REFUSED if code is None else pb.WHY_SIGNALLED if code < 0 else pb.WHY_EXITED
        why = attempt.stop or (pb.WHY_NONE if code == 0 else by_code)
        attempt.phase, attempt.exit = pb.PHASE_ENDED, pb.Exit(why=why, code=code)
        self.tell(attempt)

    async def execute(self, attempt, start, brief):
        key, argv = start.key, ("setpriv", "--pdeathsig", "KILL", "--", *brief.command.argv)
        env = {"PATH": os.environ["PATH"], "PHALANX_ARRAY_INDEX": str(start.index), **brief.command.env}
        with suppress(OSError), open(f"{key.job}-{key.position}-{key.number}.log", "wb") as log:
            where = {"cwd": brief.command.cwd or None, "env": env, "stdout": log, "stderr": log}
            attempt.process = await asyncio.create_subprocess_exec(*argv, **where, start_new_session=True)
            attempt.phase = pb.PHASE_RUNNING
            self.report(started=pb.Started(key=key, at=time.time()))
            if brief.time_limit_s:
                self.later(brief.time_limit_s, self.halt, attempt, pb.WHY_TIMEOUT, brief.grace_s)
            return await attempt.process.wait()

    def signal(self, attempt, *numbers):
        for number in numbers if attempt.process and attempt.process.returncode is None else ():
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(attempt.process.pid, number)

    def halt(self, attempt, why, grace_s):
        attempt.stop = attempt.stop or why
        attempt.go.set()
        self.signal(attempt, signal.SIGTERM if grace_s else signal.SIGKILL, signal.SIGCONT)  # paused or not
        _ = self.later(grace_s, self.halt, attempt, why, 0) if grace_s else None


async def main(node, *addresses):
    runner = Runner(node)
    for address in cycle(addresses):
        with suppress(grpc.aio.AioRpcError, TimeoutError):
            await runner.session(address)
        await asyncio.sleep(0.2)


flock(lock := open("runner.lock", "a"), LOCK_EX | LOCK_NB)  # noqa: SIM115 - one runner for each folder
asyncio.run(main(*sys.argv[1:]))
