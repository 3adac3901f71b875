"""What is asked of a VPS, read or refused; and keys of SSH."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from phalanx.api.schema.ssh_keys import KEYS_MAX, fingerprint, host_key, new_pair, read_public_keys
from phalanx.api.schema.vps import VpsRequest, read_vps
from phalanx.core.model.job import Vps
from phalanx.errors import BadRequest, Unavailable

PRIVATE, PUBLIC = new_pair("ada")


def refusal(**fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as told:
        read_vps(VpsRequest(**fields))
    return told.value


def test_a_mode_follows_from_what_is_given():
    assert read_vps(VpsRequest(public_key=PUBLIC))[1] == Vps("upload", (PUBLIC,))
    assert read_vps(VpsRequest())[1] == Vps("generate")
    assert read_vps(VpsRequest(ssh="disabled"))[1] == Vps("disabled")


def test_all_else_is_a_submission_of_a_vps():
    asked, _ = read_vps(VpsRequest(name="lab", targets=["n1"], gpus=2, ip_token="phx_ip_1", request_id="r"))
    assert (asked.kind, asked.name, asked.targets, asked.gpus) == ("vps", "lab", ["n1"], 2)
    assert (asked.ip_token, asked.request_id) == ("phx_ip_1", "r")


@pytest.mark.parametrize(
    ("fields", "reason", "says"),
    [
        ({"ssh": "password"}, "SshModeUnknown", "upload, generate, disabled"),
        ({"ssh": ""}, "SshModeUnknown", "upload, generate, disabled"),
        ({"ssh": "none"}, "SshModeUnknown", "does not exist here"),
        ({"ssh": "upload"}, "KeyMissing", "public_key"),
        ({"ssh": "upload", "public_key": " \n"}, "KeyMissing", "public_key"),
        ({"ssh": "generate", "public_key": PUBLIC}, "BadRequest", "takes none"),
        ({"ssh": "disabled", "public_key": PUBLIC}, "BadRequest", "takes none"),
        ({"backend": "docker"}, "BadRequest", "backend"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], reason: str, says: str):
    error = refusal(**fields)
    assert error.reason == reason
    assert says in error.detail


def test_there_are_no_virtual_machines():
    with pytest.raises(Unavailable) as told:
        read_vps(VpsRequest(backend="qemu"))
    assert told.value.reason == "NoVirtualMachines"


def small_rsa() -> str:
    key = rsa.generate_private_key(65537, 1024).public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no key"),
        ("# only a comment\n", "no key"),
        (PRIVATE, "private key"),
        ("ssh-ed25519 AAAA", "is not a key"),
        ("ssh-dss AAAA", "kind of a key"),
        (f'command="x" {PUBLIC}', "kind of a key"),
        (f"{PUBLIC}\x07", "printable"),
        ("sk-ssh-ed25519@openssh.com AAAA", "is not a key"),
        ("\n".join([PUBLIC] * (KEYS_MAX + 1)), "at most"),
        (small_rsa(), "1024 bits"),
    ],
    ids=["empty", "comment", "private", "short", "dss", "options", "control", "hardware", "many", "small"],
)
def test_what_is_no_public_key_is_refused(text: str, says: str):
    with pytest.raises(BadRequest) as told:
        read_public_keys("public_key", text)
    assert told.value.detail.startswith("public_key: ")
    assert says in told.value.detail


def test_several_keys_may_be_given_with_comments():
    other = new_pair("bob")[1]
    assert read_public_keys("key", f"# mine\n{PUBLIC}\n\n{other}\n") == (PUBLIC, other)


def test_keys_are_those_of_openssh(tmp_path: Path):
    private, public = host_key(b"s" * 32)
    assert host_key(b"s" * 32)[1] == public != host_key(b"t" * 32)[1]
    for name, text in (("private", private), ("public", public)):
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o600)
        words = ["ssh-keygen", "-lf", str(file)]
        shown = subprocess.run(words, capture_output=True, check=True, text=True).stdout
        assert fingerprint(public) in shown
