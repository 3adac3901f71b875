"""An impossible capacity is refused where it is read."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.core.model.resources import Capacity, Request


@pytest.mark.parametrize("cores", [float("nan"), float("inf"), -1, 1e300])
def test_a_node_with_a_number_of_cores_that_cannot_be_is_refused(cores: float):
    packed = msgspec.msgpack.encode({"cores": cores, "memory_bytes": 0})
    with pytest.raises(msgspec.ValidationError, match=r"cores: .* is out of range"):
        msgspec.msgpack.decode(packed, type=Capacity)


@pytest.mark.parametrize("text", ['{"cores":2}', '{"cores":0.5}', '{"cores":0}', "{}"])
def test_cores_are_stored_as_they_were_written(text: str):
    assert msgspec.json.encode(msgspec.json.decode(text, type=Request)).decode() == text
