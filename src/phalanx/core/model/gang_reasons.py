"""Why members of a gang wait for each other or for those that leave; see `reason.py`."""

from __future__ import annotations

from phalanx.core.model.amounts import plural
from phalanx.core.model.reason import Reason, Tier


def barrier_wait(ready: int, placed: int, short: int, missing: list[str], seconds: float) -> Reason:
    """Members hold their places and wait for each other; `missing` names those that are not ready."""
    text = f"{ready} of {placed} placed members are ready"
    if missing:
        text += f"; not ready: {', '.join(missing)}"
    if short:
        text += f"; {short} more need a place"
    text += f"; all give their places back in {seconds:.0f} s unless complete by then"
    numbers = {"ready": ready, "placed": placed, "short": short, "missing": missing, "seconds": seconds}
    return Reason("BarrierWait", Tier.PROGRESS, text, numbers)


def waiting_victims(victims: list[str], nodes: dict[str, int], seconds: float) -> Reason:
    """Its places are kept for it until the tasks that were preempted have gone."""
    places = ", ".join(f"{node} × {count}" for node, count in nodes.items())
    text = f"Places are kept for it ({places}); waiting for {plural(len(victims), 'preempted task')} to stop"
    text += f": {', '.join(victims)}; the promise ends in {seconds:.0f} s"
    numbers = {"victims": victims, "nominated": nodes, "seconds": seconds}
    return Reason("WaitingVictims", Tier.PROGRESS, text, numbers)


def members_missing(group: str, needed: int, able: int, why: list[str]) -> Reason:
    """Too few members of a group can be placed at all just now."""
    which = f" of {group}" if group else ""
    text = f"Needs {plural(needed, 'member')}{which} at once; only {able} can be placed: {', '.join(why)}"
    return Reason("GangIncomplete", Tier.CAPACITY, text, {"needed": needed, "able": able, "why": why})


def members_apart(layer: str, domains: list[str]) -> Reason:
    text = f"All members must be in one {layer}; those that run are in {', '.join(domains)}"
    return Reason("MustGatherImpossible", Tier.NEVER, text, {"layer": layer, "domains": domains})
