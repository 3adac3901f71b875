"""What a runner says of usage: what cannot be true ends the connection, and an older side is not confused by it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import msgpack, structs

from phalanx.core.model.orders import Ended, Exit, Why
from phalanx.core.model.usage import AttemptUsage
from phalanx.link import wire
from phalanx.link.usage import (
    DEVICES_SHOWN_MAX,
    KEYS_MAX,
    POINTS_MAX,
    AttemptSamples,
    DeviceSample,
    IdleDevice,
    ReadUsage,
    UsageData,
    UsagePoint,
)

KEY = ("01kx0000000000000000000001", 0, 1)
POINT = UsagePoint(1.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0)
SAMPLES = AttemptSamples(KEY, AttemptUsage(1.0, 2), (POINT,), (DeviceSample(0, 0.5, 7),), POINT)
BEAT = wire.Beat(1, 100.0, [])


def data(**fields: Any) -> UsageData:
    return UsageData(1, 1.0, 5.0, [structs.replace(SAMPLES, **fields)])


@pytest.mark.parametrize(
    "message", [ReadUsage(1, [KEY], 60), data(), structs.replace(BEAT, idle=[IdleDevice(1, 9.0, 0.0)])]
)
def test_messages_travel_as_frames(message: wire.Message):
    assert wire.Unpacker().feed(wire.pack(message)) == [message]
    assert wire.why_wrong(message) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (data(points=(POINT,) * (POINTS_MAX + 1)), f"at most {POINTS_MAX}"),
        (data(devices=(DeviceSample(0, 0.5, 7),) * (DEVICES_SHOWN_MAX + 1)), f"{DEVICES_SHOWN_MAX} devices"),
        (data(usage=AttemptUsage(-1.0)), "exit.usage.cpu_s = -1"),
        (data(points=(structs.replace(POINT, cores=math.nan),)), "expected finite numbers"),
        (data(last=structs.replace(POINT, at=math.inf)), "expected finite numbers"),
        (data(devices=(DeviceSample(0, 1e300, 7),)), "expected finite numbers"),
        (UsageData(1, 1.0, 5.0, [SAMPLES] * (KEYS_MAX + 1)), f"at most {KEYS_MAX}"),
        (structs.replace(BEAT, idle=[IdleDevice(0, -1.0, 0.0)]), "idle: device 0"),
        (structs.replace(BEAT, idle=[IdleDevice(0, math.nan, 0.0)]), "idle: device 0"),
        (structs.replace(BEAT, idle=[IdleDevice(0, 1.0, 2.0)]), "idle: device 0"),
        (structs.replace(BEAT, idle=[IdleDevice(0, 1.0, 0.0)] * 5000), "5000 devices are listed"),
        (wire.Reports(1, [Ended(KEY, Exit(Why.NONE, 0, usage=AttemptUsage(math.nan)))]), "exit.usage.cpu_s"),
    ],
)
def test_what_cannot_be_true_is_named(wrong: wire.Message, said: str):
    assert said in wire.why_wrong(wrong)


def test_a_heartbeat_and_a_hello_of_a_former_runner_are_understood():
    former = msgpack.encode({"type": "beat", "epoch": 1, "sent_at": 2.0, "held": []})
    assert msgpack.decode(former, type=wire.Message).idle == []
    hello = {"type": "log_hello", "version": 3, "token": "t", "node": "n1", "incarnation": "a", "files": True}
    assert msgpack.decode(msgpack.encode(hello), type=wire.Message).usage is False
