"""What `client.logs` returns: the output of a task in pieces of bytes, or as one text if that is asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator


class LogBytes(Iterator[bytes]):
    """What a task wrote, in pieces of bytes, to be looped over once. `text()` is what `job.logs()` gives."""

    def __init__(self, pieces: Generator[bytes, None, None], of: str) -> None:
        self._pieces = pieces
        self._of = of

    def __next__(self) -> bytes:
        return next(self._pieces)

    def text(self) -> str:
        """All that is left of it, as text."""
        return b"".join(self).decode("utf-8", "replace")

    def close(self) -> None:
        """End it before its end."""
        self._pieces.close()

    def __repr__(self) -> str:
        return f"<the log of {self._of}, in pieces of bytes: loop over it, or take its text()>"


class AsyncLogBytes(AsyncIterator[bytes]):
    """The same of an async client: `async for piece in client.logs(17)`, `await client.logs(17).text()`."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], of: str) -> None:
        self._pieces = pieces
        self._of = of

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def text(self) -> str:
        """All that is left of it, as text."""
        return b"".join([piece async for piece in self]).decode("utf-8", "replace")

    async def aclose(self) -> None:
        """End it before its end."""
        await self._pieces.aclose()

    def __repr__(self) -> str:
        return (
            f"<the log of {self._of}, in pieces of bytes: loop over it with async for, or await its text()>"
        )
