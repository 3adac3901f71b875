"""Whether and how a runner takes part in the overlay network: found out once, at its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import structs

from phalanx.core.model.resources import NOTE_MAX, Isolation
from phalanx.logger import logger
from phalanx.runner.accounts import Accounts, NoAccount
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.nftables import Nft
from phalanx.runner.overlay import Kernel, TaskNetworks, mark_of, why_not
from phalanx.runner.overlay_owners import BY_ACCOUNT, BY_CGROUP, NOT_TOLD_APART, TaskOwners
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.wireguard import WireGuard

log = logger("runner")


def take_part(
    engine: RunnerEngine,
    state_dir: Path,
    cgroups: Sequence[Cgroups],
    accounts: Accounts,
    *,
    simulated: bool,
) -> None:
    """In the overlay network, if the coordinator has one; simulated nodes have simulated addresses."""
    why = "" if simulated else why_not()
    engine.has_overlay = not why
    if simulated or why:
        log.info("addresses of the overlay network", given="simulated" if simulated else f"none: {why}")
        return

    def make() -> Kernel:
        from phalanx.runner.overlay_kernel import OverlayKernel  # here, for its library takes long to import

        return OverlayKernel(mark, encrypting)

    mark = mark_of(engine.origin)
    encrypting, reason = _wireguard(state_dir)
    owners = _owners(cgroups, accounts, Nft())
    has = engine.capacity.isolation or Isolation()
    note = "; ".join(filter(None, (has.note, "" if owners.way else NOT_TOLD_APART)))
    engine.capacity = structs.replace(
        engine.capacity,
        isolation=structs.replace(has, network=owners.way, note=note),
        wireguard=encrypting.public if encrypting is not None else "",
        no_wireguard=reason,
    )
    engine.networks = TaskNetworks(make, mark, lambda: engine.address, owners)


def _wireguard(state_dir: Path) -> tuple[WireGuard | None, str]:
    """This node's key, or why it cannot encrypt."""
    try:
        return WireGuard.found(state_dir), ""
    except OSError as error:
        return None, (error.strerror or str(error))[:NOTE_MAX]


def _owners(cgroups: Sequence[Cgroups], accounts: Accounts, nft: Nft) -> TaskOwners:
    """How tasks in the node's own network are told apart here."""
    bases = [base for each in cgroups if each.tracking is not None and (base := each.v2_base) is not None]
    if len(bases) == len(cgroups) and nft.can_match_cgroups():
        return TaskOwners(BY_CGROUP, bases)
    if accounts.are_mapped:
        return TaskOwners(BY_ACCOUNT, uid_of=uid_of(accounts))
    return TaskOwners()


def uid_of(accounts: Accounts) -> Callable[[str], int | None]:
    """The account of a user; None for those who have none here."""

    def found(user: str) -> int | None:
        try:
            account = accounts.of(user)
        except NoAccount:
            return None
        return None if account is None else account.uid

    return found
