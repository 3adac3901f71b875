"""TLS between two ends in memory: which peer is accepted, its identity, and the message of a failure."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.tls import ClientTls, ServerTls, TlsFiles, client_context, explain, peer_node, server_context
from tests.support.certificate_authority import Authority


class Handshake:
    """Both ends of a connection that make a handshake without a network. Raises what either end would."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(to_client, to_server, server_hostname=host)

    def shake(self) -> None:
        waiting: list[Callable[[], None]] = [self.client.do_handshake, self.server.do_handshake]
        while waiting:
            step = waiting.pop(0)
            try:
                step()
            except ssl.SSLWantReadError:
                waiting.append(step)


def test_a_node_that_shows_its_certificate_is_known_by_its_name(tmp_path: Path):
    ca = Authority(tmp_path)
    hands = Handshake(server_context(ca.coordinator(), mutual=True), client_context(ca.node("n1")))
    hands.shake()
    assert peer_node(hands.server) == "n1"
    assert hands.client.version() == "TLSv1.3"


def test_a_certificate_that_is_not_a_nodes_names_no_node(tmp_path: Path):
    ca = Authority(tmp_path)
    hands = Handshake(server_context(ca.coordinator(), mutual=True), client_context(ca.client("n1")))
    hands.shake()
    assert peer_node(hands.server) == ""


def test_whoever_shows_nothing_is_nobody(tmp_path: Path):
    ca = Authority(tmp_path)
    hands = Handshake(server_context(ca.coordinator(), mutual=False), client_context(ca.alone))
    hands.shake()
    assert peer_node(hands.server) is None
    assert peer_node(None) is None


def failure(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> ssl.SSLError:
    with pytest.raises(ssl.SSLError) as caught:
        Handshake(server, client, host).shake()
    return caught.value


def test_without_a_certificate_nobody_gets_through_where_one_is_asked_for(tmp_path: Path):
    ca = Authority(tmp_path)
    error = failure(server_context(ca.coordinator(), mutual=True), client_context(ca.alone))
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in (error.reason or "")


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    stranger = theirs.node("n1")._replace(ca_file=ours.alone.ca_file)
    failure(server_context(ours.coordinator(), mutual=True), client_context(stranger))


def test_a_nodes_certificate_does_not_make_a_coordinator(tmp_path: Path):
    ca = Authority(tmp_path)
    failure(server_context(ca.node("n1"), mutual=False), client_context(ca.alone))


@pytest.mark.parametrize(
    ("host", "authority", "what", "hint"),
    [
        ("10.9.9.9", "ours", "for other names", "--host"),
        ("elsewhere.lab", "ours", "for other names", "--host"),
        ("127.0.0.1", "theirs", "not from an authority you trust", "PHALANX_CA_FILE"),
    ],
)
def test_what_is_wrong_with_a_coordinator_is_said_with_what_to_do(
    tmp_path: Path, host, authority, what, hint
):
    known = {"ours": Authority(tmp_path / "ours"), "theirs": Authority(tmp_path / "theirs")}
    server = server_context(known["ours"].coordinator(), mutual=False)
    said = explain(failure(server, client_context(known[authority].alone), host))
    assert said is not None
    assert what in said.text
    assert hint in said.hint


def test_a_wrapped_error_is_understood_and_any_other_is_not_one_of_tls(tmp_path: Path):
    inner = ssl.SSLError(1, "wrong")
    inner.reason = "WRONG_VERSION_NUMBER"
    outer = OSError("outside")
    outer.__cause__ = inner
    said = explain(outer)
    assert said is not None
    assert "does not use TLS" in said.text
    assert explain(OSError("refused")) is None
    assert explain(None) is None


def test_a_handshake_that_was_cut_is_worth_another_try_and_a_stranger_is_not(tmp_path: Path):
    cut = ssl.SSLEOFError(8, "cut")
    cut.reason = "UNEXPECTED_EOF_WHILE_READING"
    said = explain(cut)
    assert said is not None
    assert not said.is_lasting
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    unknown = explain(failure(server_context(ours.coordinator(), mutual=False), client_context(theirs.alone)))
    assert unknown is not None
    assert unknown.is_lasting


def test_old_versions_are_refused(tmp_path: Path):
    ca = Authority(tmp_path)
    client = client_context(ca.alone)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    hands = Handshake(server_context(ca.coordinator(), mutual=False), client)
    hands.shake()
    assert hands.client.version() == "TLSv1.2"
    assert server_context(ca.coordinator(), mutual=False).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_renewed_certificate_is_taken_up_and_a_bad_one_is_not(tmp_path: Path):
    ca = Authority(tmp_path)
    tls_files = ca.coordinator()
    tls = ServerTls(tls_files)
    assert not tls.reload()
    before = tls.rest
    ca.coordinator()
    assert tls.reload()
    assert tls.rest is not before
    assert tls_files.cert_file is not None
    tls_files.cert_file.write_text("half a file")
    good = tls.rest
    with pytest.raises(ConfigError, match="cannot be used"):
        tls.reload()
    assert tls.rest is good


def test_whoever_dials_takes_up_a_renewed_certificate_and_keeps_the_old_one_meanwhile(tmp_path: Path):
    ca = Authority(tmp_path)
    tls_files = ca.node("n1")
    tls = ClientTls(tls_files)
    first = tls.context()
    assert tls_files.key_file is not None
    tls_files.key_file.write_text("")
    assert tls.context() is first
    ca.node("n1")
    assert tls.context() is not first


def test_a_key_of_another_certificate_is_told(tmp_path: Path):
    ca = Authority(tmp_path)
    mixed = ca.node("n1")._replace(key_file=ca.node("n2").key_file)
    with pytest.raises(ConfigError, match="does not belong"):
        client_context(mixed)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"nowhere\.crt cannot be read"):
        client_context(TlsFiles(tmp_path / "nowhere.crt"))
