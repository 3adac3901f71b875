"""Records of older versions: what a log or an image may hold only grows, at its end, and by fields with defaults (R19).

`fixtures/records-0.2.json` has the fields of every kind of record as version 0.2 wrote them, in the order in which
they stand in an array.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct, json
from msgspec.inspect import StructType, Type, UnionType, type_info

from phalanx.core.cluster.events import Event
from phalanx.core.cluster.image import ClusterImage


class Kind(Struct, frozen=True):
    """How one kind of record is written down."""

    is_array: bool
    fields: tuple[str, ...]


RELEASED = json.decode(
    (Path(__file__).parent / "fixtures" / "records-0.2.json").read_bytes(), type=dict[str, Kind]
)


def found_in(kinds: object) -> dict[str, StructType]:
    """Every struct that a record of these kinds may hold, by its name."""
    found: dict[str, StructType] = {}
    left: list[Type] = [type_info(kinds)]
    while left:
        each = left.pop()
        if isinstance(each, StructType):
            if each.cls.__name__ in found:
                continue
            found[each.cls.__name__] = each
            left += [field.type for field in each.fields]
        elif isinstance(each, UnionType):
            left += each.types
        else:
            parts = [
                getattr(each, name, ()) for name in ("item_type", "item_types", "key_type", "value_type")
            ]
            left += [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
    return found


TODAY = found_in(Event) | found_in(ClusterImage)
TODAY["AttemptImage"] = TODAY["Attempt"]  # written down as it is now; the name of an array is not
TODAY["NodeRested"] = TODAY["NodeExcluded"]  # its tag is the former name


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_a_record_of_version_0_2_is_read(name: str):
    before, now = RELEASED[name], TODAY[name]
    names = tuple(field.encode_name for field in now.fields)
    assert now.array_like == before.is_array
    if before.is_array:
        assert names[: len(before.fields)] == before.fields
    assert set(before.fields) <= set(names)
    added = [field for field in now.fields if field.encode_name not in before.fields]
    assert [field.name for field in added if field.required] == []


def test_the_table_has_all_that_version_0_2_kept():
    """Kinds that came later are not in the table; those it has cannot disappear."""
    assert RELEASED.keys() <= TODAY.keys()
    assert {"AttemptEnded", "RoomPromised", "JobSettled", "Exit", "Job", "NodeImage"} <= RELEASED.keys()
