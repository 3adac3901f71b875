"""Notices about elastic nodes reach a real HTTP server and a real program, within bounds, and delay nobody."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from phalanx.coordinator import notices
from phalanx.coordinator.notices import Notices, notice_of
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.events import Event, NodeDisabled, NodeEnabled, NodeNeeded
from phalanx.core.cluster.state import ClusterState
from phalanx.settings_elastic import Elastic
from tests.support.builders import a_cluster, a_job
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
DISABLED = NodeDisabled(at=5.0, node="n1", reason="by ann", automatic=False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Receiver:
    """An HTTP server that keeps each request and answers with the next of `statuses`, or never if that is None."""

    def __init__(self, *statuses: int | None) -> None:
        self.statuses = list(statuses)
        self.heads: list[str] = []
        self.documents: list[dict[str, Any]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next(line for line in head.lower().splitlines() if line.startswith("content-length:"))
            self.documents.append(json.decode(await reader.readexactly(int(length.split(":")[1]))))
            self.heads.append(head)
            status = self.statuses.pop(0) if self.statuses else 204
            if status is None:
                with suppress(
                    asyncio.CancelledError
                ):  # the loop ends; the server's own callback asks for a result
                    await asyncio.Event().wait()
                return
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % (status or 0))
            await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def a_receiver(*statuses: int | None) -> AsyncIterator[Receiver]:
    receiver = Receiver(*statuses)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks/nodes?x=1"
    try:
        yield receiver
    finally:
        server.close()


@asynccontextmanager
async def delivering(told: Notices) -> AsyncIterator[None]:
    task = asyncio.ensure_future(told.deliver())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_state() -> ClusterState:
    return a_cluster(n1={"cores": 8, "gpus": 2}).state


def turn(*events: Event) -> Turn:
    return Turn(list(events), [], [], [], 7)


def a_program(folder: Path, body: str) -> tuple[str, ...]:
    """A program that runs this Python code, with `said`, the document, and `out`, a file to write to."""
    file = folder / "program.py"
    file.write_text(
        f"import json, os, sys, time, pathlib\nout = pathlib.Path({str(folder / 'out')!r})\n" + body,
        encoding="utf-8",
    )
    return sys.executable, str(file)


async def test_the_webhook_gets_a_document_about_the_node():
    async with a_receiver() as receiver:
        told = Notices(Elastic(webhook=receiver.url))
        async with delivering(told):
            told.note(turn(DISABLED), a_state())
            await until(lambda: bool(receiver.documents))
    (said,) = receiver.documents
    assert (said["event"], said["reason"], said["automatic"], said["at"]) == (
        "disabled",
        "by ann",
        False,
        5.0,
    )
    node = said["node"]
    assert (node["name"], node["status"], node["cores"], node["gpus"]) == ("n1", "Online", 8, 2)
    assert receiver.heads[0].startswith("POST /hooks/nodes?x=1 HTTP/1.1")
    assert "authorization" not in receiver.heads[0].lower()


async def test_the_webhook_gets_its_token(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("s3cret\n", encoding="ascii")
    file.chmod(0o600)
    async with a_receiver() as receiver:
        told = Notices(Elastic(webhook=receiver.url, webhook_token_file=file))
        async with delivering(told):
            told.note(turn(DISABLED), a_state())
            await until(lambda: bool(receiver.documents))
    assert "authorization: bearer s3cret" in receiver.heads[0].lower()


async def test_a_failure_is_tried_again_with_the_same_id_and_then_given_up():
    async with a_receiver(500, 503, 200, 500, 500, 500, 200) as receiver:
        told = Notices(Elastic(webhook=receiver.url), pause_s=0.01)
        async with delivering(told):
            told.note(turn(DISABLED), a_state())
            told.note(turn(NodeEnabled(at=6.0, node="n1", reason="by ann")), a_state())
            told.note(turn(NodeNeeded(at=7.0, node="", first_job="j", tasks=2, reason="why")), a_state())
            await until(lambda: len(receiver.documents) == 7)
    assert [said["event"] for said in receiver.documents] == ["disabled"] * 3 + ["enabled"] * 3 + ["needed"]
    assert len({said["id"] for said in receiver.documents[:3]}) == 1
    assert receiver.documents[6]["node"] is None


async def test_what_the_receiver_refuses_for_good_is_not_tried_again():
    async with a_receiver(400, 200) as receiver:
        told = Notices(Elastic(webhook=receiver.url), pause_s=0.01)
        async with delivering(told):
            told.note(turn(DISABLED, NodeEnabled(at=6.0, node="n1", reason="by ann")), a_state())
            await until(lambda: len(receiver.documents) == 2)
    assert [said["event"] for said in receiver.documents] == ["disabled", "enabled"]


async def test_a_receiver_that_never_answers_has_a_time_limit():
    async with a_receiver(None, None, None, 200) as receiver:
        told = Notices(Elastic(webhook=receiver.url, notify_timeout_s=0.1), pause_s=0.01)
        async with delivering(told):
            told.note(turn(DISABLED, NodeEnabled(at=6.0, node="n1", reason="by ann")), a_state())
            await until(lambda: len(receiver.documents) == 4)
    assert [said["event"] for said in receiver.documents] == ["disabled"] * 3 + ["enabled"]


async def test_more_than_may_wait_are_dropped_oldest_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notices, "NOTICES_MAX", 2)
    async with a_receiver() as receiver:
        told = Notices(Elastic(webhook=receiver.url))
        for second in (1.0, 2.0, 3.0):  # nobody delivers yet, and no call waits
            told.note(turn(NodeDisabled(at=second, node="n1", reason="by ann")), a_state())
        async with delivering(told):
            await until(lambda: len(receiver.documents) == 2)
    assert [said["at"] for said in receiver.documents] == [2.0, 3.0]


async def test_a_program_gets_the_document_and_no_shell(tmp_path: Path):
    body = "out.write_text(json.dumps([json.load(sys.stdin), sys.argv[1:], dict(os.environ)]))"
    command = (*a_program(tmp_path, body), "$(touch pwned); `id`", "a b")
    told = Notices(Elastic(command=command))
    state = a_state()
    async with delivering(told):
        told.note(turn(DISABLED), state)
        await until((tmp_path / "out").exists)
        await until(lambda: bool((tmp_path / "out").read_text()))
    said, arguments, environment = json.decode((tmp_path / "out").read_bytes())
    assert (said["event"], said["node"]["name"], said["id"]) == ("disabled", "n1", "1-7-0")
    assert arguments == ["$(touch pwned); `id`", "a b"]
    assert (environment["PHALANX_EVENT"], environment["PHALANX_NODE"]) == ("disabled", "n1")
    assert (
        not set(environment)
        - {"PHALANX_EVENT", "PHALANX_NODE", "PATH", "HOME", "USER", "LANG", "TZ"}
        - {name for name in environment if name.startswith(("LC_", "CONDA_", "VIRTUAL_ENV", "PYTHON", "__"))}
    )


async def test_a_program_that_fails_is_tried_again(tmp_path: Path):
    body = "out.open('a').write('x')\nsys.exit('no power' if len(out.read_text()) < 3 else 0)"
    told = Notices(Elastic(command=a_program(tmp_path, body)), pause_s=0.01)
    async with delivering(told):
        told.note(turn(DISABLED), a_state())
        await until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() == "xxx")


async def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path):
    body = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
        "out.open('a').write(f'{os.getpid()} {child.pid}\\n')\ntime.sleep(600)"
    )
    told = Notices(Elastic(command=a_program(tmp_path, body), notify_timeout_s=2.0), pause_s=0.01)
    async with delivering(told):
        told.note(turn(DISABLED), a_state())
        await until(lambda: (tmp_path / "out").exists() and len((tmp_path / "out").read_text().split()) >= 2)
        first = [int(pid) for pid in (tmp_path / "out").read_text().split()[:2]]
        await until(lambda: not any(_runs(pid) for pid in first))


async def test_a_program_that_cannot_be_started_delays_nothing_else():
    async with a_receiver() as receiver:
        told = Notices(Elastic(webhook=receiver.url, command=("/nonexistent/program",)), pause_s=0.01)
        async with delivering(told):
            told.note(turn(DISABLED, NodeEnabled(at=6.0, node="n1", reason="by ann")), a_state())
            await until(lambda: len(receiver.documents) == 2)


async def test_without_a_receiver_nothing_is_kept():
    told = Notices(Elastic())
    told.note(turn(DISABLED), a_state())
    assert not told._waiting


def test_a_need_says_what_the_first_job_asks_for():
    cluster = a_cluster(n1={"cores": 8})
    job = a_job(cores=64)
    cluster.submit(job, allow_infeasible=True)
    need = NodeNeeded(at=7.0, node="n1", first_job=job.id, tasks=1, reason="why")
    said = json.decode(json.encode(notice_of(need, "1-2-3", cluster.state)))
    assert (said["job"], said["request"], said["node"]["name"]) == (job.id, {"cores": 64}, "n1")


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended; the pid of a zombie is still there."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
