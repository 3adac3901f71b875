"""Each coordinator that the settings name, asked for itself: which is active, a standby, or does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError
from phalanx.settings import Settings

if TYPE_CHECKING:
    from phalanx.client.client import Client

ANSWER_S = 3.0  # for all of them together, beside what the command itself asks


class Coordinators:
    """All of them are asked at once, from the start, so that one which hangs costs no more than `ANSWER_S` in all."""

    def __init__(self, settings: Settings) -> None:
        """With only one address nothing is asked: its own answer already says it all."""
        self._until = SystemClock().monotonic() + ANSWER_S
        self._said: dict[str, CoordinatorView | str] = {}
        self._asking: list[tuple[str, Client, Thread]] = []
        if len(settings.client.address or ()) > 1:
            self._ask(settings)

    def lines(self) -> Iterator[tuple[str, str]]:
        """One line for each address."""
        active = 0
        for address, client, thread in self._asking:
            thread.join(max(0.0, self._until - SystemClock().monotonic()))
            said = self._said.get(address, f"no answer within {ANSWER_S:g} s")
            client.close()
            active += isinstance(said, CoordinatorView) and said.role == "Active"
            yield "Coordinator", f"{address}: {said if isinstance(said, str) else describe_role(said)}"
        if active > 1:
            yield "Alarm", f"{active} coordinators are active: do all of them have the same --store?"

    def _ask(self, settings: Settings) -> None:
        from phalanx.client.access import reach_by
        from phalanx.client.client import Client
        from phalanx.client.http import HttpTransport

        found = reach_by(settings)
        for address in found.addresses:
            exchange = HttpTransport(address, found.tls, vouched=found.vouched, patience_s=0.0)
            client = Client(token=found.token, token_file=found.token_file, exchange=exchange)
            thread = Thread(target=self._note, args=(address, client), daemon=True)
            self._asking.append((address, client, thread))
            thread.start()

    def _note(self, address: str, client: Client) -> None:
        try:
            self._said[address] = client.cluster().coordinator or "an older version"
        except PhalanxError as error:
            self._said[address] = error.detail


def describe_role(view: CoordinatorView) -> str:
    """One coordinator in a few words."""
    if view.role == "Active":
        return f"{view.name} is Active"
    if view.trouble:
        return f"{view.name} is {view.role}, {view.behind_s:.1f} s behind; its store does not answer: {view.trouble}"
    leader = f"{view.leader} is active at {view.address}" if view.leader else "no active coordinator is known"
    return f"{view.name} is {view.role}, {view.behind_s:.1f} s behind; {leader}"
