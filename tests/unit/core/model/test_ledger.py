"""One node's ledger, by example: what is granted, and the first reason why not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from phalanx.core.model.containers import CONTAINERS, MOUNTS, ROOTFS
from phalanx.core.model.ledger import Ledger, LedgerError
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import (
    ISOLATED,
    Capacity,
    Device,
    Grant,
    Isolation,
    NumaNode,
    Request,
    parse_target,
)
from tests.support.builders import GIB, a_capacity


def a_ledger(**has: int) -> Ledger:
    return Ledger("n1", a_capacity(**has))  # type: ignore[arg-type]


def asking(target: str | None = None, **asked: object) -> Request:
    aim = parse_target(target) if target else None
    if aim and aim.devices:
        asked["gpus"] = len(aim.devices)
    return Request(target=aim, **asked)  # type: ignore[arg-type]


def granted(ledger: Ledger, request: Request) -> Grant:
    answer = ledger.fit(request)
    assert isinstance(answer, Grant), answer
    return answer


def refused(ledger: Ledger, request: Request) -> Reason:
    answer = ledger.fit(request)
    assert isinstance(answer, Reason), answer
    return answer


def test_devices_of_one_numa_node_go_together() -> None:
    ledger = a_ledger(cores=8, numa=2, gpus=4)
    assert granted(ledger, asking(gpus=2)).devices == (0, 1)
    ledger.take(Grant(0, 0, (0,)))
    assert granted(ledger, asking(gpus=2)).devices == (2, 3), "one whole side is left"
    assert granted(ledger, asking(gpus=1)).devices == (1,), "the broken side is used up first"
    assert granted(ledger, asking(gpus=3)).devices == (1, 2, 3), "no side has three"


def test_cores_are_taken_beside_the_devices() -> None:
    ledger = a_ledger(cores=8, numa=2, gpus=4)
    assert granted(ledger, asking("n1::2", cores=3)).numa_cores == ((1, 3),)
    assert granted(ledger, asking("n1:0::2", cores=3)).numa_cores == ((0, 3),), (
        "what the user says goes first"
    )


def test_cores_come_from_the_fullest_numa_node_that_holds_them() -> None:
    ledger = a_ledger(cores=8, numa=2)
    ledger.take(Grant(2, 0, (), None, ((0, 2),)))
    assert granted(ledger, asking(cores=2)).numa_cores == ((0, 2),)
    assert granted(ledger, asking(cores=3)).numa_cores == ((1, 3),)
    assert granted(ledger, asking(cores=5)).numa_cores == ((1, 4), (0, 1))


def test_a_task_bound_to_a_numa_node_gets_all_its_cores_there_or_none() -> None:
    ledger = a_ledger(cores=8, numa=2)
    assert granted(ledger, asking("n1:1", cores=4)).numa == 1
    no = refused(ledger, asking("n1:1", cores=5))
    assert (no.tier, no.code) == (Tier.NEVER, "ExceedsLargestNode")
    assert "NUMA 1" in no.text


def test_the_reasons_come_in_the_order_of_seed_000() -> None:
    ledger = a_ledger(cores=4, memory=4 * GIB, numa=2, gpus=2)
    ledger.take(Grant(1, GIB, (0,), None, ((0, 1),)))
    everything_wrong = {"cores": 5, "memory_bytes": 5 * GIB}
    assert refused(ledger, asking("n1:7::9", **everything_wrong)).code == "NumaNotFound"
    assert refused(ledger, asking("n1:0::9", **everything_wrong)).code == "GpuIndexInvalid"
    assert refused(ledger, asking("n1:0::0", **everything_wrong)).code == "TargetBusy"
    assert "cores" in refused(ledger, asking("n1::1", **everything_wrong)).text
    assert "memory" in refused(ledger, asking("n1::1", cores=1, memory_bytes=5 * GIB)).text


def test_no_core_and_no_memory_asks_for_none() -> None:
    ledger = a_ledger(cores=1, memory=GIB)
    ledger.take(Grant(1, GIB))
    assert granted(ledger, asking(cores=0)) == Grant(0, 0)


def test_devices_are_told_apart_by_type_and_size() -> None:
    devices = (Device(0, "a100", 40 * GIB), Device(1, "a100", 80 * GIB), Device(2, "h100", 80 * GIB))
    ledger = Ledger("n1", Capacity(8, GIB, (), devices))
    assert granted(ledger, asking(gpus=1, gpu_type="h100")).devices == (2,)
    assert granted(ledger, asking(gpus=1, gpu_memory_bytes=80 * GIB)).devices == (1,)
    assert granted(ledger, asking(gpus=3, gpu_type="*100")).devices == (0, 1, 2)
    assert granted(ledger, asking(gpus=1, gpu_type="*H10*")).devices == (2,)
    none = refused(ledger, asking(gpus=1, gpu_type="*rtx*"))
    assert none.text == "n1 has 0 GPUs of type *rtx*, 1 requested"
    few = refused(ledger, asking(gpus=2, gpu_type="h100"))
    assert (few.code, few.numbers) == ("ExceedsLargestNode", {"wanted": 2, "free": 1, "total": 1})
    bad = refused(ledger, asking("n1::0", gpu_type="h100"))
    assert (bad.code, bad.numbers) == ("GpuIndexInvalid", {"bad": [0], "valid": [2]})


def test_what_time_can_mend_is_told_from_what_it_cannot() -> None:
    ledger = a_ledger(cores=4, gpus=2)
    ledger.take(Grant(3, 0, (0,)))
    assert refused(ledger, asking(cores=2)).tier == Tier.CAPACITY
    assert refused(ledger, asking(cores=5)).tier == Tier.NEVER
    assert refused(ledger, asking(cores=0, gpus=2)).tier == Tier.CAPACITY
    assert refused(ledger, asking(cores=0, gpus=3)).tier == Tier.NEVER
    assert ledger.never(asking(cores=4, gpus=2)) is None


def test_taking_twice_or_giving_back_twice_stops_everything() -> None:
    ledger = a_ledger(cores=2, gpus=1)
    grant = Grant(1, 0, (0,))
    ledger.take(grant)
    with pytest.raises(LedgerError, match="is not free"):
        ledger.take(grant)
    ledger.give_back(grant)
    with pytest.raises(LedgerError, match="given back twice"):
        ledger.give_back(grant)


def test_a_grant_of_a_numa_node_that_is_not_there_has_no_room() -> None:
    ledger = Ledger("n1", Capacity(4, GIB, (NumaNode(0, 4),)))
    assert not ledger.has_room(Grant(1, 0, (), None, ((7, 1),)))


def test_cores_are_not_taken_where_more_is_promised_than_there_is() -> None:
    ledger = a_ledger(cores=12, numa=3)
    ledger.take(Grant(5, 0, (), None, ((0, 3), (1, 1), (2, 1))))
    ledger.promise(Grant(3, 0, (), None, ((0, 3),)))
    assert ledger.numa_free == {0: -2000, 1: 3000, 2: 3000}
    assert granted(ledger, asking(cores=4)).numa_cores == ((1, 3), (2, 1))
    assert refused(ledger, asking(cores=5)).tier == Tier.CAPACITY


def test_a_node_without_the_labels_asked_for_says_which() -> None:
    ledger = Ledger("n1", Capacity(4, GIB, labels={"disk": "slow"}))
    no = refused(ledger, asking(labels=(("disk", "fast"), ("zone", "a"))))
    assert (no.code, no.tier, no.numbers["lacking"]) == (
        "NoMatchingLabels",
        Tier.NEVER,
        ["disk=fast", "zone=a"],
    )
    assert (
        ledger.slots(asking(labels=(("disk", "fast"),))),
        ledger.slots(asking(labels=(("disk", "slow"),))),
    ) == (0, 4)


FULL = Isolation("cpuset", "quota", "limit", "limit", "none")


def test_a_node_that_does_not_isolate_says_what_it_does_not_hold() -> None:
    required = asking(labels=(("disk", "fast"), ISOLATED))
    weak = Isolation("affinity", "quota", "limit", "limit", "none")
    no = refused(Ledger("n1", Capacity(4, GIB, labels={"disk": "fast"}, isolation=weak)), required)
    assert (no.code, no.tier, no.numbers["lacking"]) == ("NotIsolated", Tier.NEVER, ["CPUs"])
    assert refused(Ledger("n1", Capacity(4, GIB, isolation=weak)), required).code == "NoMatchingLabels"
    older = refused(Ledger("n1", Capacity(4, GIB, labels={"disk": "fast"})), required)
    assert (older.code, older.numbers["lacking"]) == ("NotIsolated", ["limits"])
    full = Ledger("n1", Capacity(4, GIB, labels={"disk": "fast", **dict([ISOLATED])}, isolation=FULL))
    assert granted(full, required).cores == 1


@pytest.mark.parametrize(
    ("field", "word", "lacking"),
    [
        ("cpus", "affinity", "CPUs"),
        ("cpu_time", "", "CPU time"),
        ("memory", "", "memory"),
        ("processes", "", "number of processes"),
        ("devices", "", "devices"),
    ],
)
def test_what_is_not_held_is_named(field: str, word: str, lacking: str) -> None:
    assert FULL.lacking == []
    assert replace(FULL, **{field: word}).lacking == [lacking]


def test_a_node_without_a_runtime_for_containers_says_why() -> None:
    asked = asking(labels=(CONTAINERS, ROOTFS))
    none = refused(Ledger("n1", Capacity(4, GIB, containers="none: no socket")), asked)
    assert (none.code, none.tier, none.text.endswith("this image: no socket")) == (
        "NoContainers",
        Tier.NEVER,
        True,
    )
    docker = Ledger("n1", Capacity(4, GIB, labels=dict([CONTAINERS]), containers="docker 24"))
    assert "only podman takes a folder" in refused(docker, asked).text
    assert granted(docker, asking(labels=(CONTAINERS,))).cores == 1


def test_what_docker_cannot_do_for_a_container_is_named() -> None:
    has = Capacity(4, GIB, labels=dict([CONTAINERS]), containers="docker 24", block="10.128.0.0/24")
    docker = Ledger("n1", has)
    for asked, because in (
        (asking(labels=(CONTAINERS, ROOTFS), addresses=1), "only podman gives a container an address"),
        (asking(labels=(CONTAINERS, MOUNTS)), "only podman mounts files for users with accounts"),
    ):
        no = refused(docker, asked)
        assert (no.code, no.tier) == ("NoContainers", Tier.NEVER)
        assert because in no.text
        assert no.text.endswith("and it has docker 24")
