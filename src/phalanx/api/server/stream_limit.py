"""Places for what lasts, shared fairly: so many in all, a part of them for one user or one address, some kept back.

Whoever finds none is told which limit it was and when to come again. What is merely short
counts against the concurrency limit instead.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.api.server.request import HttpRequest
from phalanx.errors import TooMany

USER_SHARE = 4  # one user may have a quarter of the places,
ADDRESS_SHARE = 2  # one address half of them, for several users may be behind it
KEPT_SHARE = 8  # and an eighth comes on top for those who run the cluster
KEEPERS = ("operator", "admin")
Place = tuple[str, str]  # whose, and where from


class StreamLimit:
    """A number of places of one kind."""

    def __init__(self, most: int, noun: str) -> None:
        self.most = most
        self.noun = noun
        self.used = 0
        self._of_users: Counter[str] = Counter()
        self._of_addresses: Counter[str] = Counter()

    @contextmanager
    def taken(self, http_request: HttpRequest) -> Iterator[None]:
        """Within this block a place is the visitor's."""
        place = self.take(http_request)
        try:
            yield
        finally:
            self.give(place)

    def take(self, http_request: HttpRequest) -> Place:
        """A place for this visitor, to be given back; TooMany if there is none."""
        self._check(http_request)
        self.used += 1
        self._of_users[http_request.user] += 1
        self._of_addresses[http_request.address] += 1
        return http_request.user, http_request.address

    def give(self, place: Place) -> None:
        user, address = place
        self.used -= 1
        _less(self._of_users, user)
        _less(self._of_addresses, address)

    def _check(self, http_request: HttpRequest) -> None:
        is_keeper = http_request.identity.role in KEEPERS
        kept = self.most // KEPT_SHARE if is_keeper else 0
        mine, ours = _share(self.most, USER_SHARE), _share(self.most, ADDRESS_SHARE)
        if self.used >= self.most + kept:
            raise self._no(f"all {self.most} {self.noun} are taken")
        if self._of_users[http_request.user] >= mine + kept:
            raise self._no(
                f"user {http_request.user} has {mine} of the {self.most} {self.noun}, as many as one user may"
            )
        if (
            not is_keeper
            and not _is_local(http_request.address)
            and self._of_addresses[http_request.address] >= ours
        ):
            raise self._no(
                f"address {http_request.address} has {ours} of the {self.most} {self.noun}, as many as one address may"
            )

    def _no(self, text: str) -> TooMany:
        return TooMany(f"{text}: end some, or try again", reason="TooManyPlaces", retry_after_s=1)


def _share(most: int, divisor: int) -> int:
    return max(1, most // divisor)


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _is_local(address: str) -> bool:
    """Everybody on the coordinator's own machine has one address, so that it says nothing about who they are."""
    try:
        return not address or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
