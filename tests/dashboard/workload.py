"""A small cluster with work of every kind for some minutes, so that each panel of the dashboard shows something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from phalanx.api.schema.workflows import WorkflowSpec
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError
from phalanx.manifests.read import read
from tests.support.real_cluster import RealCluster
from tests.support.waiting import pause

BIG, PLAIN = "cpus=16,gpus=4,type=h100,memory=80GiB,ram=128GiB", "cpus=8,ram=32GiB"
NODES = {"gpu-1": BIG, "gpu-2": BIG, "cpu-1": PLAIN, "cpu-2": PLAIN}
ROUND_S = 5.0
MODULE = "def answer_all(specs):\n    return [{'n': len(specs)} for _ in specs]\n"
FLOW = """
apiVersion: flowmesh/v1
metadata: {name: nightly}
spec:
  graph:
    nodes:
      - {name: train, spec: {taskType: sft, command: [sleep, "2"], model: {source: {identifier: org/base}}}}
      - {name: ask-1, dependsOn: [train], spec: {taskType: inference, data: 1, model: {source: {identifier: org/base}}}}
      - {name: ask-2, dependsOn: [train], spec: {taskType: inference, data: 2, model: {source: {identifier: org/base}}}}
      - {name: ask-3, dependsOn: [train], spec: {taskType: inference, data: 3, model: {source: {identifier: org/base}}}}
"""


class WorkingCluster(RealCluster):
    """Two coordinators and four nodes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "served.py").write_text(MODULE)
        executors = folder / "executors.toml"
        run = '{ run = "served:answer_all", merges = true, cwd = "%s" }'
        executors.write_text("[executors]\ninference = " + run % folder + "\n")
        settings = {"coordinator.executors_file": str(executors)}
        super().__init__(folder, coordinators=("head-1", "head-2"), settings=settings)
        self.node_settings = {
            "gpu-1": {"runner.cost_per_hour": 12.0},
            "gpu-2": {"runner.cost_per_hour": 12.0},
        }
        [found] = read([("flow.yaml", FLOW)]).workflows
        self._flow: WorkflowSpec = found.spec

    def begin(self) -> None:
        self.start(NODES)

    def errors(self) -> Iterator[str]:
        """What the logs of the coordinators say of errors, with the lines behind it."""
        for name in self.coordinators:
            lines = (self.folder / f"{name}.log").read_text(encoding="utf-8").splitlines()
            found = [at for at, line in enumerate(lines) if " ERROR " in line or "Traceback" in line]
            for at in found[:5]:
                yield "\n".join((f"{name}: {lines[at]}", *lines[at + 1 : at + 30]))

    def work(self, seconds: float) -> None:
        """Submit rounds of work; in the middle a node is killed and comes back, then the leader is killed."""
        clock = SystemClock()
        until, events = clock.monotonic() + seconds, self._incidents(seconds)
        number = 0
        while clock.monotonic() < until:
            with suppress(PhalanxError):  # nobody leads for a moment
                self._submit(number)
            next(events)
            number += 1
            pause(ROUND_S)

    def _submit(self, number: int) -> None:
        client = self.client
        client.submit(command=["sleep", str(1 + number % 4)], array="1-24", name="sweep")
        client.submit(command=["false"], max_retries=2, name="flaky")
        client.submit(command=["sleep", "3"], gpus=1 + number % 2, name="train", array="1-3")
        first = client.submit(command=["sleep", "3"], name="first").task_ids[0]
        client.submit(command=["sleep", "1"], name="second", after=[first])
        client.submit_workflow(self._flow)
        if number % 3 == 0:
            client.gang(["sleep", "3"], 2, gpus=2, name="gang")
        if number % 4 == 1:
            client.submit(command=["sleep", "9"], gpus=4, array="1-2", name="background", priority=-5)
        if number % 4 == 2:
            client.gang(["sleep", "4"], 2, gpus=4, name="urgent", priority=50)
            client.evict(first)

    def _incidents(self, seconds: float) -> Iterator[None]:
        clock = SystemClock()
        began = clock.monotonic()
        while clock.monotonic() < began + seconds * 0.3:
            yield
        self.kill("cpu-2")
        while clock.monotonic() < began + seconds * 0.5:
            yield
        self.start_runner("cpu-2")
        while clock.monotonic() < began + seconds * 0.65:
            yield
        killed = self.leader()
        self.kill(killed)
        yield
        self.start_coordinator(killed)
        while True:
            yield
