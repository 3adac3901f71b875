"""Blocks of the overlay network, and which addresses of one are free."""

from __future__ import annotations

import pytest

from phalanx.core.model.ledger import Ledger, LedgerError
from phalanx.core.model.overlay import AddressBlock, OverlayRules, gateway, parse_address, usable
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Capacity, Grant, Request, Target

BLOCK = "10.128.0.0/29"  # addresses 2 to 5


def test_blocks_begin_at_the_base_of_the_subnet():
    rules = OverlayRules("10.128.0.0/12")
    assert [rules.block(number) for number in (0, 1, 1023)] == [
        "10.128.0.0/22", "10.128.4.0/22", "10.143.252.0/22",
    ]  # fmt: skip
    assert rules.blocks == 1024
    assert AddressBlock(rules.block(0)).owns("10.128.0.5"), "the seed's example"


def test_a_block_knows_its_number():
    rules = OverlayRules("10.128.0.0/12")
    assert [rules.number(rules.block(number)) for number in (0, 7, 1023)] == [0, 7, 1023]
    assert rules.number("10.144.0.0/22") is None
    assert rules.number("10.128.0.0/24") is None
    assert OverlayRules().number("10.128.0.0/22") is None


def test_the_first_two_and_the_last_two_addresses_are_given_to_nobody():
    block = AddressBlock(BLOCK)
    assert list(block.listed(100)) == [f"10.128.0.{last}" for last in range(2, 6)]
    assert (block.free, usable(BLOCK), usable("")) == (4, 4, 0)
    assert not any(block.owns(f"10.128.0.{last}") for last in (0, 1, 6, 7, 8))
    assert gateway(BLOCK) == "10.128.0.1"


@pytest.mark.parametrize("text", ["10.128.0", "10.128.0.256", "::1", "", "10.128.0.5/24", "a" * 100])
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(ValueError, match="is not an IPv4 address"):
        parse_address(text)


def test_an_address_rests_after_its_use_and_is_free_again_later():
    block = AddressBlock(BLOCK)
    block.take("10.128.0.2")
    block.give_back("10.128.0.2")
    assert (block.choose(), block.free) == ("10.128.0.3", 3)
    block.end_rest("10.128.0.2")
    assert (block.choose(), block.free) == ("10.128.0.2", 4)


def test_a_reserved_address_is_for_its_task_alone_and_does_not_rest_between_its_attempts():
    block = AddressBlock(BLOCK)
    block.reserve("10.128.0.2")
    assert (block.choose(), block.free) == ("10.128.0.3", 3)
    block.take("10.128.0.2")
    block.give_back("10.128.0.2")
    assert block.is_free_for_its_task("10.128.0.2")
    assert (block.free, block.resting) == (3, set())
    block.unreserve("10.128.0.2")
    assert block.free == 4


def a_ledger(block: str = BLOCK, **has: int) -> Ledger:
    return Ledger("n1", Capacity(8, 1 << 30, block=block, **has))  # type: ignore[arg-type]


def granted(ledger: Ledger, request: Request) -> Grant:
    grant = ledger.fit(request)
    assert isinstance(grant, Grant)
    ledger.take(grant)
    return grant


def test_the_exact_address_is_chosen_with_the_grant_and_counted_as_a_row():
    ledger, asks = a_ledger(), Request(addresses=1)
    assert ledger.slots(asks) == 4
    assert [granted(ledger, asks).address for _ in range(4)] == [f"10.128.0.{last}" for last in range(2, 6)]
    no = ledger.fit(asks)
    assert isinstance(no, Reason)
    assert (no.code, no.numbers) == ("WaitingCapacity", {"wanted": 1, "free": 0, "total": 4})
    assert ledger.slots(asks) == 0
    assert isinstance(ledger.fit(Request()), Grant), "others need none"


def test_a_node_without_a_block_gives_no_addresses():
    no = a_ledger("").fit(Request(addresses=1))
    assert isinstance(no, Reason)
    assert no.code == "OverlayUnavailable"
    assert a_ledger("").never(Request(addresses=1)) == no


def test_an_address_that_was_used_does_not_make_room_at_once():
    ledger, asks = a_ledger(), Request(addresses=1)
    first = granted(ledger, asks)
    ledger.give_back(first)
    assert ledger.free[2] == 3
    ledger.retake(first)
    assert (ledger.free[2], ledger.addresses and ledger.addresses.held) == (3, {first.address})


def test_a_try_that_is_undone_leaves_no_trace():
    ledger, asks = a_ledger(), Request(addresses=1)
    ledger.undo_take(granted(ledger, asks))
    assert ledger.free[2] == 4
    assert ledger.addresses is not None
    assert ledger.addresses.resting == set()


def test_what_is_promised_or_held_is_given_to_no_other():
    ledger = a_ledger()
    grant = ledger.fit(Request(addresses=1))
    assert isinstance(grant, Grant)
    ledger.promise(grant)
    assert not ledger.has_room(grant)
    with pytest.raises(LedgerError):
        ledger.take(grant)
    ledger.withdraw(grant)
    ledger.take(grant)
    assert ledger.free[2] == 3


def test_a_request_for_a_reserved_address_gets_exactly_that():
    ledger, asks = a_ledger(), Request(target=Target("n1"), address="10.128.0.4")
    ledger.change_address("reserve", "10.128.0.4")
    assert ledger.slots(asks) == 1
    assert granted(ledger, asks).address == "10.128.0.4"
    no = ledger.fit(asks)
    assert isinstance(no, Reason)
    assert no.code == "AddressBusy"
    other = ledger.fit(Request(target=Target("n1"), address="10.128.9.9"))
    assert isinstance(other, Reason)
    assert other.code == "AddressInvalid"


def test_a_node_that_runs_one_task_at_a_time_gives_it_an_address_while_others_rest():
    ledger = a_ledger(slots=1)
    first = granted(ledger, Request(addresses=1))
    ledger.give_back(first)
    assert granted(ledger, Request(addresses=1)).address == "10.128.0.3"
