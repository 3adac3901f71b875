"""The commands of a transcript: each line becomes something done to the cluster, and lines that tell of it.

add-node n1 cores=8 gpus=2 numa=2 memory=16GiB    submit train cores=4 gpus=1 target=n1::0 array=1-10%3
started train#1    end train#1 code=3             cancel train    pause train    resume train
pass 10s           beat n1                        silence n1 35s  back n1        drain n1 broken fan
hush n1 n2         lose n1 it burnt               remove n1       elastic n1 off a reason
scaling auto idle_s=60 queue_threshold=2
trouble n1 no keeper    leave n1 600    health n1 disk / is full    device n1 1 Xid 79    (both: evict first to evict)
why train          tasks train                    nodes           story train
Those about workflows are in `workflow_script.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import structs

from phalanx.api.schema.cluster import NodeView
from phalanx.api.schema.groupspec import parse_gather
from phalanx.api.schema.jobs import TaskView, WhyReply
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.sweeps import RetryTasksRequest
from phalanx.core.cluster.decision import Disposed, Refused
from phalanx.core.cluster.inputs import Disconnect, Heartbeat, Tell
from phalanx.core.explain.change import Asker
from phalanx.core.model.amounts import describe_bytes, parse_bytes, parse_seconds
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.health import DeviceHealth, NodeHealth
from phalanx.core.model.orders import (
    AttemptKey,
    Disposition,
    Ended,
    Exit,
    Phase,
    Report,
    Returned,
    Started,
    Why,
)
from phalanx.core.model.resources import TargetError, parse_target
from phalanx.errors import PhalanxError
from tests.support.builders import a_capacity
from tests.support.fake_keeper import FakeKeeper
from tests.transcripts.scripted_cluster import BEGINNING_S, Player, ScriptedCluster, finish
from tests.transcripts.workflow_script import WorkflowScript

ANN = Asker("ann", controls_all=True, operates=True, declares=True)  # an admin, and all jobs are hers


class Script(WorkflowScript):
    """A cluster and the commands that act on it."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()

    def obey(self, line: str) -> list[str]:
        """Carry out a line, and return what happened."""
        word, *rest = shlex.split(line)
        command: Callable[..., None] | None = getattr(self, "do_" + word.replace("-", "_"), None)
        if command is None:
            raise ValueError(f"no command {word!r}")
        self.cluster.lines = []
        try:
            command(*rest)
        except PhalanxError as error:
            self._refused(error)
        self.cluster.settle()
        return self.cluster.lines

    # Users.

    def do_submit(self, name: str, *words: str) -> None:
        """`user=NAME` says whose job it is; it is ann's otherwise."""
        others_job = [word for word in words if word.startswith("user=")]
        user = others_job[0].removeprefix("user=") if others_job else ANN.user
        request = _request(name, [word for word in words if word not in others_job])
        others = (each.partition(":") for each in request.after)
        request.after = [self.cluster.id_of(other) + colon + when for other, colon, when in others]
        self.cluster.commands.upcoming = _names(name, request.targets)
        reply = finish(self.cluster.commands.submit(request, user))
        told, self.cluster.lines = self.cluster.lines, []
        self._say(f"{'known already:' if reply.replayed else 'accepted'} {', '.join(reply.task_ids)}")
        for failed in reply.failed_targets:
            self._say(f"not on {failed.target}: {failed.reason}: {failed.detail}")
        self.cluster.lines += told

    def do_retry_tasks(self, name: str, again: str, *words: str) -> None:
        self.cluster.commands.upcoming = iter([again])
        request = RetryTasksRequest(request_id=words[0] if words else None)
        reply = finish(self.cluster.commands.retry(self.cluster.id_of(name), request, ANN.user))
        word = "known already:" if reply.replayed else "accepted"
        self.cluster.lines.insert(0, f"{word} {self.cluster.names[reply.batch_id]}")

    def do_cancel(self, name: str) -> None:
        reply = finish(self.cluster.commands.cancel(self.cluster.id_of(name)))
        self.cluster.lines.insert(0, f"cancelled {reply.cancelled}, {reply.stopping} still to be stopped")

    def do_evict(self, name: str) -> None:
        reply = finish(self.cluster.commands.evict(self.cluster.id_of(name), "ann"))
        self.cluster.lines.insert(0, f"{reply.evicted} asked to leave")

    def do_pause(self, name: str) -> None:
        finish(self.cluster.commands.pause(self.cluster.id_of(name)))

    def do_resume(self, name: str) -> None:
        finish(self.cluster.commands.resume(self.cluster.id_of(name)))

    def do_drain(self, node: str, *reason: str) -> None:
        finish(self.cluster.commands.drain(node, " ".join(reason)))

    def do_undrain(self, node: str) -> None:
        finish(self.cluster.commands.undrain(node))

    def do_elastic(self, node: str, word: str, *reason: str) -> None:
        finish(self.cluster.commands.set_elastic(node, word == "on", " ".join(reason), "ann"))

    def do_scaling(self, mode: str, *words: str) -> None:
        """From now on elastic nodes follow these rules, such as auto idle_s=60 queue_threshold=2."""
        given: dict[str, Any] = {
            name: float(value) for name, _, value in (each.partition("=") for each in words)
        }
        rules = ElasticRules(mode, **given)  # type: ignore[arg-type]
        self.cluster.state.rules = self.cluster.rules = structs.replace(self.cluster.rules, elastic=rules)

    def do_lose(self, node: str, *reason: str) -> None:
        finish(self.cluster.commands.lose(node, " ".join(reason), "ann"))

    def do_remove(self, node: str) -> None:
        finish(self.cluster.commands.remove_node(node, "ann"))

    # Questions.

    def do_why(self, name: str) -> None:
        flow, colon, stage = name.partition(":")  # a stage may have no job
        for line in _why(finish(self.cluster.commands.why(self.cluster.id_of(flow) + colon + stage, ANN))):
            self._say(line)

    def do_tasks(self, name: str) -> None:
        page = finish(
            self.cluster.commands.tasks(self.cluster.id_of(name), status=None, cursor=None, limit=50)
        )
        for view in page.items:
            self._say(_task(view))

    def do_nodes(self) -> None:
        for view in finish(self.cluster.commands.nodes()):
            self._say(_node(view))

    def do_story(self, name: str) -> None:
        page = finish(
            self.cluster.commands.story(self.cluster.id_of(name), cursor=None, limit=100, inspects=True)
        )
        for line in page.items:
            self._say(f"{line.at - BEGINNING_S:>6.1f}s  {line.text}")

    # Machines and their processes.

    def do_add_node(self, name: str, *words: str) -> None:
        has = {field: value for field, _, value in (word.partition("=") for word in words)}
        sizes = {"memory": parse_bytes(has.pop("memory"))} if "memory" in has else {}
        kind = {"kind": has.pop("type")} if "type" in has else {}
        labels = {layer: has.pop(layer) for layer in ("spine", "block", "rack") if layer in has}
        capacity = a_capacity(**sizes, **kind, **{field: int(value) for field, value in has.items()})  # type: ignore[arg-type]
        capacity = structs.replace(capacity, labels=labels)
        self.cluster.players[name] = Player(self.cluster, name, capacity)
        self.cluster.players[name].connect()

    def do_started(self, *attempts: str) -> None:
        for key in map(self.cluster.key_of, attempts):
            self._keeper(key).announce(key, self.cluster.now_s)
            self.cluster.settle()

    def do_end(self, attempt: str, how: str = "code=0") -> None:
        """`code=3`, `signal=9` or `oom`."""
        key = self.cluster.key_of(attempt)
        word, _, number = how.partition("=")
        code, signal = (int(number), None) if word == "code" else (None, int(number or 9))
        self._keeper(key).end(key, self.cluster.now_s, code, signal, oom=word == "oom")

    def do_refuse(self, attempt: str, *message: str) -> None:
        """The program cannot be started at all."""
        key = self.cluster.key_of(attempt)
        self._keeper(key).fail_to_start(key, " ".join(message), self.cluster.now_s)

    def do_cut(self, node: str) -> None:
        """The connection ends, and both sides see it."""
        player = self.cluster.players[node]
        player.wire.close()
        self.cluster.turn([Disconnect(node, player.engine.incarnation)])

    def do_back(self, node: str) -> None:
        self.cluster.players[node].deaf = False
        self.cluster.players[node].connect()

    def do_deafen(self, node: str) -> None:
        """Orders to this node are lost on the way."""
        self.cluster.players[node].deaf = True

    def do_restart_runner(self, node: str) -> None:
        self.cluster.players[node].restart(crash=False)
        self.cluster.players[node].connect()

    def do_crash(self, node: str) -> None:
        """The machine dies with everything on it."""
        self.cluster.players[node].restart(crash=True)

    def do_forget(self, attempt: str) -> None:
        key = self.cluster.key_of(attempt)
        next(player for player in self.cluster.players.values() if key in player.keeper.running).forget(key)

    def do_impostor(self, node: str) -> None:
        """Another machine registers as this node."""
        impostor = Player(self.cluster, node, self.cluster.players[node].capacity)
        impostor.engine.incarnation, impostor.engine.origin = "another life", "another machine"
        impostor.connect()

    def do_restart_coordinator(self) -> None:
        self.cluster.open_term()
        self._say(f"epoch {self.cluster.state.epoch} begins")

    # Time and messages.

    def do_pass(self, seconds: str) -> None:
        self.cluster.pass_time(parse_seconds(seconds))

    def do_silence(self, node: str, seconds: str) -> None:
        """A node is not heard from, and its connection just hangs."""
        self.cluster.players[node].wire.close()
        self.cluster.pass_time(parse_seconds(seconds))

    def do_trouble(self, node: str, *words: str) -> None:
        """The runner finds that it cannot start tasks, or without words that it can again, and reports it."""
        self.cluster.players[node].engine.trouble = " ".join(words)
        self.cluster.players[node].beat()

    def do_health(self, node: str, *words: str) -> None:
        """A health check of the node fails, or without words all pass, and its runner reports it."""
        self._checked(node, words, lambda said, evict: NodeHealth(said, evict=evict))

    def do_device(self, node: str, index: str, *words: str) -> None:
        """A device fails its check, or without words all pass."""
        self._checked(
            node, words, lambda said, evict: NodeHealth("", (DeviceHealth(int(index), said),), evict)
        )

    def _checked(self, node: str, words: tuple[str, ...], made: Callable[[str, bool], NodeHealth]) -> None:
        is_evicting = words[:1] == ("evict",)
        said = " ".join(words[is_evicting:])
        self.cluster.players[node].engine.health = made(said, is_evicting) if said else None
        self.cluster.players[node].beat()

    def do_leave(self, node: str, keep_s: str = "0") -> None:
        """The runner stops in an orderly way; its keeper goes on."""
        player = self.cluster.players[node]
        self.cluster.receive(player.session, player.engine.leave(self.cluster.now_s, float(keep_s)))
        player.keeper.lease_until = player.engine.state.lease_until
        player.wire.close()
        envelope = self.cluster.links.closed(player.session)
        assert envelope is not None
        self.cluster.turn(envelope[0])

    def do_hush(self, *nodes: str) -> None:
        """From now on these nodes are not heard from, and it is not noticed."""
        for node in nodes:
            self.cluster.players[node].wire.close()

    def do_beat(self, node: str, *listing: str) -> None:
        """A heartbeat: a true one, or one that lists other things (`beat n1 lists train#1`, `lists nothing`)."""
        player = self.cluster.players[node]
        if not listing:
            player.beat()
            return
        held = [(self.cluster.key_of(word), Phase.RUNNING) for word in listing[1:] if word != "nothing"]
        answer = self.cluster.turn(
            [Heartbeat(node, player.engine.incarnation, held, player.engine.generation)]
        )[0]
        if isinstance(answer, Refused):
            self._say(f"refused: {answer.reason.text}")

    def do_report(self, node: str, what: str, attempt: str, *words: str) -> None:
        """Any report, true or not: `report n1 ended train#1 code=0 epoch=1 life=1`."""
        given = dict(word.split("=") for word in words)
        player, key = self.cluster.players[node], self.cluster.key_of(attempt)
        epoch = int(given.get("epoch", self.cluster.state.epoch))
        life = f"{node}/{given.get('life', player.life)}"
        report = _report(what, key, int(given.get("code", 0)), self.cluster.now_s)
        lease = int(given.get("generation", player.engine.generation))
        answer = self.cluster.turn([Tell(node, life, epoch, report, lease)])[0]
        assert isinstance(answer, Disposed)
        said = f"answered: {answer.disposition.name.lower().replace('_', ' ')}"
        if answer.disposition in (Disposition.STALE_EPOCH, Disposition.STALE_LEASE):
            said += f" (in force: epoch {answer.epoch}, generation {answer.generation})"
        self.cluster.lines.insert(0, said)

    def _keeper(self, key: AttemptKey) -> FakeKeeper:
        keepers = (player.keeper for player in self.cluster.players.values())
        return next(keeper for keeper in keepers if key in keeper.running)

    def _say(self, line: str) -> None:
        self.cluster.lines.append(self.cluster.named(line))

    def _refused(self, error: PhalanxError) -> None:
        self._say(f"refused ({error.status} {error.reason}): {error.detail}")
        if error.hint:
            self._say(f"  hint: {error.hint}")


def _request(name: str, words: Sequence[str]) -> SubmitRequest:
    fields: dict[str, object] = {"command": ["run", name], "name": name, "targets": []}
    for word in words:
        field, equals, value = word.partition("=")
        field = {"retries": "max_retries", "gpu-ids": "required_gpus"}.get(field, field.replace("-", "_"))
        if field == "target":
            fields["targets"] += [value]  # type: ignore[operator]
        elif field == "required_gpus":
            fields[field] = [[int(index) for index in each.split(",") if index] for each in value.split(";")]
        elif field == "gather":
            fields[field] = [parse_gather(each) for each in value.split(",")]
        elif field == "after":
            fields[field] = value.split(",")
        elif not equals:
            fields[field] = True
        else:
            fields[field] = int(value) if value.lstrip("-").isdecimal() else value
            if field == "cores" and "." in value:
                fields[field] = float(value)
    return SubmitRequest(**fields)  # type: ignore[arg-type]


def _names(name: str, targets: list[str]) -> Iterator[str]:
    """The names of the jobs of one submission: a batch has one for each target that can be read."""
    if len(targets) < 2:
        return iter([name])
    return iter([f"{name}@{target}" for target in targets if _is_readable(target)])


def _is_readable(target: str) -> bool:
    try:
        parse_target(target)
    except TargetError:
        return False
    return True


def _report(what: str, key: AttemptKey, code: int, now: float) -> Report:
    if what == "started":
        return Started(key, now)
    if what == "returned":
        return Returned(key)
    return Ended(key, Exit(Why.EXITED if code else Why.NONE, code, now, now))


def _why(reply: WhyReply) -> list[str]:
    lines = [
        f"{reply.id} is {reply.status}: {reply.dominant.text} [{reply.dominant.code}, {reply.dominant.tier}]"
    ]
    lines += [f"  also: {other.text} [{other.code}]" for other in reply.others]
    if len(reply.nodes) > 1 or any(said.count > 1 for said in reply.nodes):
        lines += [f"  {', '.join(said.nodes)}: {said.reason.code}" for said in reply.nodes]
    if reply.fix is not None:
        lines.append(f"  fix: {reply.fix.text}" + (f" ({reply.fix.command})" if reply.fix.command else ""))
    if reply.position is not None:
        lines.append(f"  place in the queue: {reply.position}")
    return lines


def _task(view: TaskView) -> str:
    parts = [f"{view.id}: {view.status}"]
    if view.paused:
        parts.append("paused")
    if view.node is not None:
        parts.append(f"attempt {view.attempt} on {view.node}")
    if view.devices:
        parts.append(f"devices {','.join(map(str, view.devices))}")
    if view.exit_code is not None:
        parts.append(f"code {view.exit_code}")
    if view.reason:
        parts.append(view.reason)
    return ", ".join(parts)


def _node(view: NodeView) -> str:
    parts = [f"{view.name} {view.status}", f"{view.cores_free} of {view.cores} cores free"]
    if view.memory_free_bytes != view.memory_bytes:
        parts.append(f"{describe_bytes(view.memory_free_bytes)} of {describe_bytes(view.memory_bytes)} free")
    parts += [f"device {device.index} {device.task or 'free'}" for device in view.devices]
    if view.drained:
        parts.append(f"drained: {view.drain_reason}")
    if view.note:
        parts.append(view.note)
    return ", ".join(parts)
