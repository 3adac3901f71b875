"""Certificates: what an authority issues, what it refuses, and what a certificate says."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from phalanx.certificates import hosts_in, issue, make_authority, show
from phalanx.errors import ConfigError, Conflict
from tests.support.certificate_authority import Authority


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_keys_are_for_their_owner_alone(tmp_path: Path):
    tls_files = Authority(tmp_path / "ca").node("n1")
    assert tls_files.key_file is not None
    assert mode_of(tmp_path / "ca" / "ca.key") == 0o600
    assert mode_of(tls_files.key_file) == 0o600
    assert mode_of(tmp_path / "ca") == 0o700


def test_a_node_is_known_by_its_uri(tmp_path: Path):
    tls_files = Authority(tmp_path / "ca").node("n-1.rack-2")
    assert tls_files.cert_file is not None
    view = show(tls_files.cert_file)
    assert (view.kind, view.name, view.hosts) == ("node", "n-1.rack-2", [])


def test_a_coordinator_has_its_hosts_in_it(tmp_path: Path):
    tls_files = Authority(tmp_path / "ca").coordinator("c1", "c1.lab", "10.0.0.1", "::1")
    assert tls_files.cert_file is not None
    assert hosts_in(tls_files.cert_file) == ["c1.lab", "10.0.0.1", "::1"]
    assert show(tls_files.cert_file).issuer == "CN=test"


def test_an_authority_says_that_it_is_one(tmp_path: Path):
    Authority(tmp_path / "ca", "Lab 7")
    view = show(tmp_path / "ca" / "ca.crt")
    assert (view.kind, view.name) == ("authority", "Lab 7")
    assert view.days_left > 3600


def test_a_certificate_lives_as_long_as_it_was_asked_for(tmp_path: Path):
    tls_files = Authority(tmp_path / "ca").node("n1", days=7)
    assert tls_files.cert_file is not None
    assert show(tls_files.cert_file).days_left == 6


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path):
    make_authority(tmp_path / "ca", "short", days=2)
    issue(tmp_path / "ca", "node", "n1", [], tmp_path / "n1", 90)
    assert show(tmp_path / "n1" / "tls.crt").valid_until == show(tmp_path / "ca" / "ca.crt").valid_until


def test_it_began_a_little_earlier_so_that_clocks_may_differ(tmp_path: Path):
    tls_files = Authority(tmp_path / "ca").node("n1")
    assert tls_files.cert_file is not None
    began = datetime.fromisoformat(show(tls_files.cert_file).valid_from)
    assert datetime.now(UTC) - began > timedelta(minutes=4)


def test_nothing_is_overwritten_unless_it_is_renewed(tmp_path: Path):
    make_authority(tmp_path / "ca", "test")
    issue(tmp_path / "ca", "node", "n1", [], tmp_path / "n1")
    first = show(tmp_path / "n1" / "tls.crt").fingerprint
    with pytest.raises(Conflict, match="already there"):
        issue(tmp_path / "ca", "node", "n1", [], tmp_path / "n1")
    with pytest.raises(Conflict, match=r"ca\.key"):
        make_authority(tmp_path / "ca", "test")
    issue(tmp_path / "ca", "node", "n1", [], tmp_path / "n1", renew=True)
    assert show(tmp_path / "n1" / "tls.crt").fingerprint != first


@pytest.mark.parametrize(
    ("kind", "name", "hosts", "days", "what"),
    [
        ("node", "N1", [], 90, "node 'N1'"),
        ("node", "../n1", [], 90, "expected lower-case letters"),
        ("node", "n1", ["h"], 90, "--host"),
        ("coordinator", "c1", [], 90, "needs the names"),
        ("coordinator", "c1", ["a b"], 90, "host 'a b'"),
        ("coordinator", "c1", ["*"], 90, r"host '\*'"),
        ("client", "alice", [], 0, "days = 0"),
        ("client", "alice", [], 4000, "days = 4000"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(tmp_path: Path, kind, name, hosts, days, what):
    make_authority(tmp_path / "ca", "test")
    with pytest.raises(ConfigError, match=what):
        issue(tmp_path / "ca", kind, name, hosts, tmp_path / "out", days)
    assert not (tmp_path / "out").exists()


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path):
    make_authority(tmp_path / "ca", "test")
    (tmp_path / "ca" / "ca.key").chmod(0o640)
    with pytest.raises(ConfigError, match="others may read") as caught:
        issue(tmp_path / "ca", "node", "n1", [], tmp_path / "n1")
    assert "chmod 600" in caught.value.hint


def test_the_key_of_another_authority_is_not_used(tmp_path: Path):
    Authority(tmp_path / "one")
    Authority(tmp_path / "two")
    (tmp_path / "two" / "ca.key").replace(tmp_path / "one" / "ca.key")
    with pytest.raises(ConfigError, match="is not the key to"):
        issue(tmp_path / "one", "node", "n1", [], tmp_path / "n1")


def test_no_authority_is_told_with_what_to_do(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"ca\.crt cannot be read"):
        issue(tmp_path, "node", "n1", [], tmp_path / "n1")


def test_what_is_no_certificate_is_told(tmp_path: Path):
    path = tmp_path / "x.crt"
    path.write_text("hello")
    with pytest.raises(ConfigError, match="holds no certificate"):
        show(path)


def test_a_leaf_cannot_issue(tmp_path: Path):
    tls_files = Authority(tmp_path / "ca").node("n1")
    assert tls_files.cert_file is not None
    found = x509.load_pem_x509_certificate(tls_files.cert_file.read_bytes())
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
