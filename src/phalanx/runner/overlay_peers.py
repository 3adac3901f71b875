"""Where the other nodes of the overlay network are, as numbers: VXLAN knows no names.

Every node says its own address, which may be a name that nobody can resolve, or whose answer takes very long. That is
no reason for others not to reach each other, and nobody waits long for it: names are looked up in threads of their own,
and what is not known in time is left out until it is.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address

from phalanx.clock import Clock, SystemClock

WAIT_S = 2.0  # for all names of one question together
AGAIN_S = 30.0  # after which one that is not known is looked up again
LOOKUPS_MAX = 32  # at the same time
Resolve = Callable[[str], str]


class PeerAddresses:
    """Remembers what names stand for; of one that cannot be resolved any more what it stood for last."""

    def __init__(self, resolve: Resolve = socket.gethostbyname, clock: Clock | None = None) -> None:
        self._resolve = resolve
        self._clock = clock or SystemClock()
        self._known: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}
        self._running: dict[str, threading.Thread] = {}

    def of(self, peers: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
        """The addresses of blocks, as far as they are known, and the names that are not."""
        wanted = list(peers)
        self._look_up({where for _, where in wanted if not _is_number(where)})
        found = [(block, self._number(where)) for block, where in wanted]
        lacking = sorted({where for (_, where), (_, ip) in zip(wanted, found, strict=True) if not ip})
        return [(block, ip) for block, ip in found if ip], lacking

    def _number(self, where: str) -> str:
        return where if _is_number(where) else self._known.get(where, "")

    def _look_up(self, names: set[str]) -> None:
        now = self._clock.monotonic()
        begun: list[threading.Thread] = []
        for name in sorted(names):
            is_due = now - self._asked_at.get(name, -AGAIN_S) >= AGAIN_S
            if is_due and name not in self._running and len(self._running) < LOOKUPS_MAX:
                self._asked_at[name] = now
                thread = threading.Thread(target=self._ask, args=(name,), name="overlay-name", daemon=True)
                self._running[name] = thread
                begun.append(thread)
                thread.start()
        for thread in begun:
            thread.join(max(0.0, now + WAIT_S - self._clock.monotonic()))

    def _ask(self, name: str) -> None:
        try:
            self._known[name] = self._resolve(name)
        except (OSError, UnicodeError):  # it is told as lacking
            return
        finally:
            self._running.pop(name, None)


def _is_number(where: str) -> bool:
    try:
        IPv4Address(where)
    except ValueError:
        return False
    return True
