"""A session on the coordinator's side: a real server and client, and the runner's end in the hands of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from phalanx.api.schema.session_frames import (
    FROM_CLIENT,
    ExitFrame,
    FrameKind,
    pack_exit,
    pack_frame,
    pack_window,
    read_frame,
)
from phalanx.api.schema.sessions import SessionTicket
from phalanx.api.server.routes.sessions import shown_command
from phalanx.client.session_calls import SessionAccess
from phalanx.client.session_connection import AsyncExecSession, open_session
from phalanx.coordinator.server import RestServer, rest_server
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, Forbidden, PhalanxError, TooMany, Unauthorized, Unavailable
from tests.support.fake_sessions import TICKET
from tests.support.rest_app import TOKEN, RestApp, a_rest_app, ask
from tests.support.waiting import pause_task, until

pytestmark = pytest.mark.anyio
GOOD = SessionTicket(session="s1", ticket=TICKET, expires_in_s=30.0, task="t", attempt=1, node="n1")


class Served:
    """A server with an app, and the runner's ends of its sessions."""

    def __init__(self, house: RestApp, server: RestServer, port: int) -> None:
        self.house = house
        self.server = server
        self.access = SessionAccess(f"http://127.0.0.1:{port}", None, TOKEN)
        self._ends: list[Duplex] = []
        self._sessions: list[AsyncExecSession] = []

    async def runner(self) -> Duplex:
        """The runner's end of the next session."""
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        _, self.house.cluster.runner_end = await loop.create_connection(Duplex, sock=there)
        _, made = await loop.create_connection(Duplex, sock=here)
        self._ends += [made, self.house.cluster.runner_end]
        return made

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
            await session._connection.lost
        for end in self._ends:
            end.abort()
            await end.lost
        self.server.should_exit = self.server.force_exit = True

    async def session(self) -> tuple[AsyncExecSession, Duplex]:
        runner = await self.runner()
        session = await open_session(self.access, GOOD)
        self._sessions.append(session)
        return session, runner


@asynccontextmanager
async def served(**limits: Any) -> AsyncIterator[Served]:
    house = a_rest_app(**limits)
    server = rest_server(house.app, "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    there = Served(house, server, await server.port())
    try:
        yield there
    finally:
        await there.close()
        await serving


async def test_frames_are_passed_on_both_ways_until_the_exit():
    async with served() as there:
        session, runner = await there.session()
        await session.write(b"in\0\xff")
        await session.resize(24, 80)
        await session.end_input()
        received = [await read_frame(runner, FROM_CLIENT) for _ in range(3)]
        assert [kind for kind, _ in received] == [FrameKind.STDIN, FrameKind.RESIZE, FrameKind.STDIN_END]
        assert received[0][1] == b"in\0\xff"
        runner.put(pack_frame(FrameKind.STDOUT, b"out") + pack_frame(FrameKind.STDERR, b"err"))
        runner.put(pack_exit(ExitFrame(4)))
        assert [await session.read() for _ in range(3)] == [("stdout", b"out"), ("stderr", b"err"), None]
        assert session.exit_code == 4
        with pytest.raises(EOFError):
            await read_frame(runner, FROM_CLIENT)
        assert there.house.cluster.counted["sessions", 101] == 1


async def test_input_waits_for_the_window_and_signals_do_not():
    async with served() as there:
        session, runner = await there.session()
        writing = asyncio.create_task(session.write(bytes(300 * 1024)))
        taken = 0
        while taken < 256 * 1024:
            taken += len((await read_frame(runner, FROM_CLIENT))[1])
        await session.signal(2)
        assert await read_frame(runner, FROM_CLIENT) == (FrameKind.SIGNAL, b"\x02")
        assert not writing.done()
        runner.put(pack_window(256 * 1024))
        while taken < 300 * 1024:
            taken += len((await read_frame(runner, FROM_CLIENT))[1])
        await writing
        await session.close()


async def test_a_client_that_is_gone_ends_the_runners_connection():
    async with served() as there:
        session, runner = await there.session()
        await session.close()
        assert await read_frame(runner, FROM_CLIENT) == (FrameKind.HANG_UP, b"")
        with pytest.raises(EOFError):
            await read_frame(runner, FROM_CLIENT)


async def ends_with(session: AsyncExecSession, error: type[PhalanxError]) -> PhalanxError:
    with pytest.raises(error) as raised:
        await session.wait()
    await session.close()
    return raised.value


async def test_a_runner_that_is_gone_is_said():
    async with served() as there:
        session, runner = await there.session()
        runner.abort()
        assert (await ends_with(session, Unavailable)).reason == "NodeAway"


async def test_a_token_that_is_no_longer_good_ends_the_session():
    async with served(beat_s=0.05) as there:
        session, runner = await there.session()
        there.house.tokens.replace([])
        await ends_with(session, Unauthorized)
        await until(lambda: runner._has_ended)


async def test_nothing_happening_ends_the_session_and_signs_of_life_do_not_count():
    async with served(session_idle_s=0.3, beat_s=0.05) as there:
        session, runner = await there.session()
        beating = asyncio.create_task(runner.beat(pack_frame(FrameKind.PING), 0.02))
        assert (await ends_with(session, Unavailable)).reason == "SessionIdle"
        beating.cancel()


async def test_a_server_that_stops_says_so():
    async with served() as there:
        session, _ = await there.session()
        there.server.should_exit = True
        assert (await ends_with(session, Unavailable)).reason == "Stopping"


async def test_bytes_that_are_no_frames_end_the_session():
    async with served() as there:
        session, _ = await there.session()
        session._connection.put(b"\xff" * 100)
        assert (await ends_with(session, BadRequest)).reason == "BadFrame"


async def test_a_slow_client_holds_up_the_runner():
    async with served() as there:
        session, runner = await there.session()
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await runner.write(pack_frame(FrameKind.STDOUT, bytes(32 * 1024)))
                sent += 32 * 1024

        flooding = asyncio.create_task(flood())
        standing: list[int] = []

        def stands() -> bool:
            standing.append(sent)
            return len(standing) > 40 and standing[-40] == sent > 0

        await until(stands)
        assert sent < 16 << 20
        before = sent
        for _ in range(200):
            await session.read()
        await until(lambda: sent > before)
        flooding.cancel()
        await session.close()
        runner.abort()


async def test_only_so_many_at_once_and_a_place_is_given_back():
    async with served(sessions=4) as there:  # of which one user may have one
        first, _ = await there.session()
        with pytest.raises(TooMany, match="places for sessions"):
            await there.session()
        await first.close()
        another, runner = await _as_soon_as_there_is_a_place(there)
        runner.put(pack_exit(ExitFrame(0)))
        assert await another.wait() == 0


async def _as_soon_as_there_is_a_place(there: Served) -> tuple[AsyncExecSession, Duplex]:
    async with asyncio.timeout(10):
        while True:
            with suppress(TooMany):
                return await there.session()
            await pause_task(0.01)


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"upgrade": "websocket"}, 400),
        ({}, 400),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"authorization": ""}, 401),
    ],
)
async def test_host_origin_token_and_protocol_are_asked_first(headers: dict[str, str], error: int):
    house = a_rest_app()
    answered = await ask(house.app, "GET", "/v1/sessions/s1", headers=headers)
    assert answered.status == error


async def test_a_ticket_that_is_not_good_is_refused_before_the_protocol_changes():
    async with served() as there:
        await there.runner()
        wrong = SessionTicket(session="s1", ticket="no", expires_in_s=30.0, task="t", attempt=1, node="n1")
        with pytest.raises(Forbidden) as refused:
            await open_session(there.access, wrong)
        assert refused.value.reason == "TicketRefused"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["ls"], "ls"),
        (["mysql", "-pSECRET", "--host=db", "name", "other"], "mysql -p --host …"),
        (["sh", "-c", "echo $SECRET"], "sh -c …"),
        (["a\x1b[31m"], "a?[31m"),
    ],
)
def test_the_audit_has_no_values(words: list[str], shown: str):
    assert shown_command(words) == shown
