"""A coordinator's certificate in use: the hosts that follow from it, and how a bad one is handled."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.coordinator.tls import TlsPorts
from phalanx.errors import ConfigError
from phalanx.settings import CoordinatorSettings
from tests.support.certificate_authority import Authority


def a_section(folder: Path, **more: object) -> CoordinatorSettings:
    flags: dict[str, object] = {"state_dir": folder / "state"}
    return load(
        flags | {f"coordinator.{key}": value for key, value in more.items()}, environment={}
    ).coordinator


def test_without_a_certificate_the_ports_speak_plainly(tmp_path: Path):
    tls_files = TlsPorts(a_section(tmp_path, hosts="gate.lab"))
    assert tls_files.rest is None
    assert tls_files.link is None
    assert tls_files.hosts() == ("gate.lab",)


def test_hosts_are_those_named_advertised_and_proven(tmp_path: Path):
    issued = Authority(tmp_path / "ca").coordinator("c1", "c1.lab", "10.0.0.1")
    tls_files = TlsPorts(
        a_section(
            tmp_path,
            hosts="gate.lab",
            advertise="https://front.lab:7433",
            tls_cert_file=issued.cert_file,
            tls_key_file=issued.key_file,
        )
    )
    assert tls_files.hosts() == ("gate.lab", "front.lab", "c1.lab", "10.0.0.1")


def test_a_certificate_that_cannot_be_used_ends_the_start(tmp_path: Path):
    ca = Authority(tmp_path / "ca")
    with pytest.raises(ConfigError, match="does not belong"):
        TlsPorts(
            a_section(tmp_path, tls_cert_file=ca.coordinator().cert_file, tls_key_file=ca.node("n1").key_file)
        )


def test_a_bad_renewal_keeps_the_old_one_in_use(tmp_path: Path):
    issued = Authority(tmp_path / "ca").coordinator()
    tls_files = TlsPorts(a_section(tmp_path, tls_cert_file=issued.cert_file, tls_key_file=issued.key_file))
    assert tls_files.rest is not None
    before = tls_files.rest()
    assert issued.cert_file is not None
    issued.cert_file.write_text("not a certificate")
    tls_files.reload()
    assert tls_files.rest() is before


@pytest.mark.parametrize("bind", ["0.0.0.0", "10.0.0.1", "::"])
def test_an_address_that_others_reach_needs_a_certificate(tmp_path: Path, bind: str):
    with pytest.raises(ConfigError, match=r"coordinator\.bind"):
        a_section(tmp_path, bind=bind)


@pytest.mark.parametrize(
    ("paper", "bind", "told"),
    [
        ("coordinator", "127.0.0.1", ""),
        ("coordinator", "10.77.0.1", "not good for where we are reached host='10.77.0.1'"),
        ("node", "127.0.0.1", "kind='node'"),
        ("open", "127.0.0.1", "hint='chmod 600"),
    ],
)
def test_what_would_keep_clients_out_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, paper: str, bind: str, told: str
):
    ca = Authority(tmp_path / "ca")
    issued = ca.node("n1") if paper == "node" else ca.coordinator()
    assert issued.key_file is not None
    issued.key_file.chmod(0o666 if paper == "open" else 0o600)
    TlsPorts(a_section(tmp_path, bind=bind, tls_cert_file=issued.cert_file, tls_key_file=issued.key_file))
    assert told in caplog.text
    assert bool(caplog.text) == bool(told)
