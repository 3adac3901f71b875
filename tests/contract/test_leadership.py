"""The leadership, asked of every store: one holder, epochs that only grow, and a fence from the first moment on."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.store.protocol import Candidate, Fenced, Leader, Store
from tests.contract.backends import LEASE_S, Backend, a_batch, bodies
from tests.support.waiting import pause_task

pytestmark = pytest.mark.anyio
ADA = Candidate("ada", "https://ada:7433", "ada:7434")
BOB = Candidate("bob", "https://bob:7433", "bob:7434")


async def test_nobody_holds_a_new_office(store: Store):
    assert await store.leader() is None


async def test_whoever_finds_it_vacant_has_it_and_everybody_knows_where(backend: Backend):
    one, two = await backend.store(), await backend.store()
    won = await one.elect(ADA, LEASE_S)
    assert won.candidate == ADA
    assert await two.elect(BOB, LEASE_S) == won
    assert await two.leader() == await one.leader() == won


async def test_who_wins_has_already_fenced_off_whoever_came_before(backend: Backend):
    one, two = await backend.store(), await backend.store()
    old = (await one.elect(ADA, LEASE_S)).epoch
    await one.append(old, a_batch(1), [])
    await backend.lease_over(two)
    new = (await two.elect(BOB, LEASE_S)).epoch
    assert new > old
    for late in (
        one.append(old, a_batch(2), []),
        one.save_image(old, 1, b"image"),
        one.renew(old, LEASE_S),
        one.confirm(old),
    ):
        with pytest.raises(Fenced):
            await late
    assert bodies(await two.load()) == [b"batch 1"]
    assert await two.leader() == Leader(new, BOB)


async def test_a_renewed_lease_keeps_the_office(backend: Backend):
    store = await backend.store()
    won = await store.elect(ADA, LEASE_S)
    await store.renew(won.epoch, 1000 * LEASE_S)
    if backend.place.kind in ("memory", "sqlite"):
        await backend.lease_over(store)
    else:
        await asyncio.wait_for(_beaten(store, won), 10 * LEASE_S)
    assert await (await backend.store()).elect(BOB, LEASE_S) == won


async def _beaten(store: Store, won: Leader) -> None:
    """Renew until longer than the first lease has passed."""
    end = asyncio.get_running_loop().time() + 1.5 * LEASE_S
    while asyncio.get_running_loop().time() < end:
        await store.renew(won.epoch, LEASE_S)
        await pause_task(0.05)


async def test_a_lease_that_ran_out_is_either_kept_or_lost_but_never_half(backend: Backend):
    store = await backend.store()
    won = await store.elect(ADA, LEASE_S)
    await backend.lease_over(store)
    try:
        await store.renew(won.epoch, LEASE_S)
    except Fenced:
        assert await store.leader() is None
    else:
        assert await store.leader() == won


async def test_our_former_self_needs_not_wait_for_its_own_lease(backend: Backend):
    before = await (await backend.store()).elect(ADA, 1000 * LEASE_S)
    after = await (await backend.store()).elect(ADA, LEASE_S)
    assert after.epoch > before.epoch
    assert after.candidate == ADA


async def test_our_former_self_may_have_moved(backend: Backend):
    await (await backend.store()).elect(ADA, LEASE_S)
    moved = Candidate("ada", "https://elsewhere:7433", "elsewhere:7434")
    store = await backend.store()
    won = await store.elect(moved, LEASE_S)
    assert await store.leader() == won == Leader(won.epoch, moved)


async def test_who_resigns_leaves_the_office_to_the_next_at_once(backend: Backend):
    one, two = await backend.store(), await backend.store()
    old = (await one.elect(ADA, 1000 * LEASE_S)).epoch
    await one.resign(old)
    assert await two.leader() is None
    with pytest.raises(Fenced):
        await one.renew(old, LEASE_S)
    assert (await two.elect(BOB, LEASE_S)).candidate == BOB


async def test_who_lost_the_office_cannot_give_it_away(backend: Backend):
    one, two = await backend.store(), await backend.store()
    old = (await one.elect(ADA, LEASE_S)).epoch
    await backend.lease_over(one)
    won = await two.elect(BOB, 1000 * LEASE_S)
    await one.resign(old)
    assert await two.leader() == won


async def test_the_office_taken_by_force_is_nobodys(backend: Backend):
    one, two = await backend.store(), await backend.store()
    old = (await one.elect(ADA, 1000 * LEASE_S)).epoch
    new = await two.open_term(at_least=old + 100)
    assert new == old + 100
    assert await one.leader() is None
    with pytest.raises(Fenced):
        await one.append(old, a_batch(1), [])
    assert (await one.elect(BOB, LEASE_S)).epoch > new


async def test_an_epoch_never_goes_back_however_little_is_asked_for(store: Store):
    high = await store.open_term(at_least=50)
    assert await store.open_term(at_least=3) > high


async def test_epochs_grow_over_a_hundred_alternations_and_reopenings(backend: Backend):
    """C33."""
    epochs = []
    for turn in range(100):
        store = await backend.store()
        won = await store.elect((ADA, BOB)[turn % 2], 1000 * LEASE_S)
        assert won.candidate == (ADA, BOB)[turn % 2]
        epochs.append(won.epoch)
        if turn % 3:
            await store.resign(won.epoch)
        else:  # without asking: as by an operator
            epochs.append(await store.open_term())
        await store.close()
    assert epochs == sorted(set(epochs))


async def test_of_many_who_try_at_once_one_wins(backend: Backend):
    stores = [await backend.store() for _ in range(5)]
    tries = (each.elect(Candidate(f"c{at}"), LEASE_S) for at, each in enumerate(stores))
    won = await asyncio.gather(*tries)
    assert len(set(won)) == 1


async def test_who_followed_the_log_and_wins_may_go_on_where_it_ends(backend: Backend):
    one, two = await backend.store(), await backend.store()
    epoch = (await one.elect(ADA, LEASE_S)).epoch
    await two.load()
    for revision in (1, 2):
        await one.append(epoch, a_batch(revision), [])
    await one.resign(epoch)
    won = await two.elect(BOB, LEASE_S)
    assert [each.revision for each in await two.since(0, 10)] == [1, 2]
    await two.append(won.epoch, a_batch(3), [])
    assert bodies(await two.load()) == [b"batch 1", b"batch 2", b"batch 3"]
