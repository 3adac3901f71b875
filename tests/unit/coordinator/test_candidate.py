"""The addresses that a coordinator announces."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.coordinator.main import candidate_of
from phalanx.errors import ConfigError
from phalanx.settings import CoordinatorSettings


def a_section(tmp_path: Path, **given: object) -> CoordinatorSettings:
    flags = {f"coordinator.{name}": value for name, value in given.items()}
    return load(flags, environment={"HOME": str(tmp_path)}, folder=tmp_path, system=tmp_path).coordinator


def test_it_is_where_it_listens_unless_something_else_is_said(tmp_path: Path):
    here = candidate_of(a_section(tmp_path, name="a", port=1234, link_port=1235))
    assert (here.name, here.address, here.link) == ("a", "http://127.0.0.1:1234", "127.0.0.1:1235")
    said = {"advertise": "https://c1.lab:7433", "link_advertise": "c1.lab:7434"}
    there = candidate_of(a_section(tmp_path, **said))
    assert (there.address, there.link) == ("https://c1.lab:7433", "c1.lab:7434")


def test_nobody_can_be_sent_to_every_address_at_once(tmp_path: Path):
    tls = {"tls_cert_file": "tls.crt", "tls_key_file": "tls.key"}
    with pytest.raises(ConfigError) as caught:
        candidate_of(a_section(tmp_path, bind="0.0.0.0", store="etcd://h:2379/p", **tls))
    assert "coordinator.advertise" in caught.value.hint
