"""What an address of a store names, and what it must not hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.store.address import StoreAddress, read_address

STATE = Path("/state")


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("memory:", StoreAddress("memory")),
        ("sqlite:", StoreAddress("sqlite", STATE / "phalanx.db")),
        ("sqlite:/srv/a b.db", StoreAddress("sqlite", Path("/srv/a b.db"))),
        ("etcd://h1", StoreAddress("etcd", hosts=("h1:2379",))),
        ("etcd://h1:1,h2:2/lab/one", StoreAddress("etcd", hosts=("h1:1", "h2:2"), prefix="lab/one")),
        ("etcds://[::1]:2379/", StoreAddress("etcd", hosts=("[::1]:2379",), tls=True)),
        ("redis://r", StoreAddress("redis", hosts=("r:6379",))),
        ("rediss://r:7000/lab", StoreAddress("redis", hosts=("r:7000",), prefix="lab", tls=True)),
    ],
)
def test_an_address_names_a_place(address: str, place: StoreAddress):
    assert read_address(address, STATE) == place
    assert read_address(str(place), STATE) == place, "and the place says its address"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "expected sqlite:PATH"),
        ("postgres://db", "expected sqlite:PATH"),
        ("etcd://", "expected sqlite:PATH"),
        ("etcd://h1:99999", "'h1:99999' is not a server"),
        ("etcd://h1,,h2", "'' is not a server"),
        ("etcd://h 1", "is not a server"),
        ("redis://a,b", "2 servers, expected at most 1"),
        ("etcd://" + ",".join(f"h{at}" for at in range(17)), "17 servers, expected at most 16"),
        ("etcd://h1/a?b", "prefix 'a?b'"),
        ("etcd://h1/" + "x" * 129, "expected up to 128"),
    ],
)
def test_what_is_wrong_is_said(address: str, said: str):
    with pytest.raises(ConfigError) as caught:
        read_address(address, STATE)
    assert said in caught.value.detail


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        read_address("redis://ada:sesame@r", STATE)
    assert "sesame" not in caught.value.detail + caught.value.hint
    assert "store_password_file" in caught.value.hint


def test_who_keeps_the_state_in_a_file_pays_for_no_server(tmp_path: Path):
    script = (
        "import asyncio, sys, pathlib\n"
        "from phalanx.store.open import open_at\n"
        "from phalanx.store.address import StoreAddress, StoreAccess\n"
        f"asyncio.run(open_at(StoreAddress('sqlite', pathlib.Path({str(tmp_path / 'a.db')!r})), StoreAccess()))\n"
        "print([name for name in ('grpc', 'redis', 'aetcd') if name in sys.modules])\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
