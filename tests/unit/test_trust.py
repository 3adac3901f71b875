"""A project file decides where a token goes only if it was trusted, and no token travels in the clear (P1)."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from phalanx.client.async_http import HttpxTransport
from phalanx.client.client import Client
from phalanx.client.http import HttpTransport
from phalanx.config import from_file, load, trusted
from phalanx.errors import BadRequest, ConfigError
from phalanx.runner.main import check_addresses
from phalanx.settings import Settings
from phalanx.tls import NO_TLS, TlsFiles
from tests.support.fake_client import Cli
from tests.unit.cli.conftest import away, cli  # noqa: F401 - fixtures

Read = Callable[..., Settings]
GUARDED = "[client]\naddress = 'https://elsewhere:7433'\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Load with these variables, in tmp_path/work/deep."""
    (tmp_path / "work/deep").mkdir(parents=True)

    def call(**variables: str) -> Settings:
        env = {"HOME": str(tmp_path / "home")} | variables
        return load(environment=env, folder=tmp_path / "work/deep", system=tmp_path / "etc")

    return call


def trust(home: Path, file: Path) -> None:
    trusted({"HOME": str(home)}).add(file, file.read_bytes())


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("work/deep/phalanx.toml", "[client]\naddress = 'https://e:1'", "client.address"),
        ("work/phalanx.toml", "[client]\ntoken_file = '~/t'", "client.token_file"),
        ("phalanx.toml", "[client]\nca_file = 'ca.crt'", "client.ca_file"),
        ("work/pyproject.toml", "[tool.phalanx.client]\naddress = 'https://e:1'", "client.address"),
        ("work/phalanx.toml", "[coordinator]\nport = 1", "coordinator.port"),
        ("work/phalanx.toml", "[runner]\njoin = 'e:1'", "runner.join"),
        ("work/phalanx.toml", "state_dir = 'theirs'", "state_dir"),
    ],
)
def test_a_stranger_sets_nothing_but_how_results_look(
    read: Read, tmp_path: Path, name: str, text: str, key: str
):
    file = tmp_path / name
    head = "[tool.phalanx]\n" if file.name == "pyproject.toml" else ""
    file.write_text(f"{head}output = 'json'\n{text}\n")
    settings = read()
    assert settings.untrusted == (str(file), (key,))
    assert key not in settings.given
    assert settings.output == "json"
    trust(tmp_path / "home", file)
    settings = read()
    assert settings.untrusted is None
    assert settings.given[key][0].source == str(file)


def test_a_token_in_the_file_of_a_stranger_stops_nobody(read: Read, tmp_path: Path):
    file = tmp_path / "work/phalanx.toml"
    file.write_text("[client]\ntoken = 'phx_x'\n")
    settings = read()
    assert settings.untrusted == (str(file), ("client.token",))
    assert settings.client.token is None
    trust(tmp_path / "home", file)
    with pytest.raises(ConfigError, match=r"client\.token is set in"):
        read()


def test_a_changed_file_is_a_stranger_again(read: Read, tmp_path: Path):
    file = tmp_path / "work/phalanx.toml"
    file.write_text(GUARDED)
    trust(tmp_path / "home", file)
    assert read().client.address == ("https://elsewhere:7433",)
    file.write_text(GUARDED.replace("elsewhere", "attacker"))
    assert read().client.address is None
    file.write_text(GUARDED)
    assert read().untrusted is None


def test_a_copy_elsewhere_is_a_stranger(read: Read, tmp_path: Path):
    file = tmp_path / "work/phalanx.toml"
    file.write_text(GUARDED)
    trust(tmp_path / "home", file)
    (tmp_path / "work/deep/phalanx.toml").write_text(GUARDED)
    assert read().client.address is None


def test_what_a_stronger_source_says_anyway_needs_no_word(read: Read, tmp_path: Path):
    (tmp_path / "work/phalanx.toml").write_text(GUARDED)
    settings = read(PHALANX_ADDRESS="https://mine:1")
    assert settings.untrusted is None
    assert [each.source for each in settings.given["client.address"]] == ["PHALANX_ADDRESS"]


def test_the_systems_own_file_is_no_project_file(tmp_path: Path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/phalanx.toml").write_text(GUARDED)
    env = {"HOME": str(tmp_path / "home")}
    settings = load(environment=env, folder=tmp_path / "etc", system=tmp_path / "etc")
    assert settings.untrusted is None
    assert settings.client.address == ("https://elsewhere:7433",)


def test_the_list_is_its_owners_alone(read: Read, tmp_path: Path):
    file = tmp_path / "work/phalanx.toml"
    file.write_text(GUARDED)
    trust(tmp_path / "home", file)
    kept = tmp_path / "home/.local/state/phalanx/trusted-projects.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o666)
    with pytest.raises(ConfigError, match="others may write"):
        read()
    kept.chmod(0o600)
    kept.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        read()


# The commands


class Listener:
    """A server that waits for tokens."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(self.headers.get("Authorization", ""))
                self.send_response(503)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join(5)
    found.server.server_close()


@pytest.fixture
def token(away: Path) -> Path:  # noqa: F811
    path = away.parent / "home/.local/state/phalanx/credentials"
    path.parent.mkdir(parents=True)
    path.write_text("phx_planted\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("named_by", ["file", "home", "variable", "pyproject", "default"])
def test_a_cloned_repository_gets_no_token(
    cli: Cli,  # noqa: F811
    away: Path,  # noqa: F811
    token: Path,
    listener: Listener,
    named_by: str,
    monkeypatch: pytest.MonkeyPatch,
):
    said = {"file": str(token), "home": "~/.local/state/phalanx/credentials"}.get(named_by)
    table = "tool.phalanx.client" if named_by == "pyproject" else "client"
    text = f"[{table}]\naddress = '{listener.address}'\n" + (f"token_file = '{said}'\n" if said else "")
    (away / ("pyproject.toml" if named_by == "pyproject" else "phalanx.toml")).write_text(text)
    if named_by in {"variable", "pyproject"}:
        monkeypatch.setenv("PHALANX_TOKEN_FILE", str(token))
    told = cli("ps")
    assert listener.heard == []
    assert told.code != 0
    assert told.err.count("phalanx config trust") == 1
    assert "is not trusted, so it may not set client.address" in told.err
    assert cli("config", "trust").code == 0
    cli("ps")
    assert listener.heard
    assert set(listener.heard) == {"Bearer phx_planted"}


def test_trust_says_what_it_lets_in_and_lists_it(cli: Cli, away: Path):  # noqa: F811
    (away / "phalanx.toml").write_text(GUARDED)
    assert cli("config", "trust").out.splitlines() == [
        f"{away}/phalanx.toml is trusted as it is now. It sets:",
        "  client.address = https://elsewhere:7433",
    ]
    assert f"{away}/phalanx.toml  trusted" in cli("config", "trust", "--list").out
    (away / "phalanx.toml").write_text("[runner]\nname = 'x'\n")
    assert "changed: not trusted" in cli("config", "trust", "--list").out
    assert cli("config", "untrust").code == 0
    assert cli("config", "trust", "--list", "-o", "json").out == "[]\n"
    again = cli("config", "untrust")
    assert (again.code, again.err.splitlines()[0]) == (5, f"error: {away}/phalanx.toml was not trusted")


def test_trust_refuses_what_is_no_project_file(cli: Cli, away: Path):  # noqa: F811
    assert cli("config", "trust").code == 5
    (away / "other.toml").write_text(GUARDED)
    assert "expected a phalanx.toml or pyproject.toml" in cli("config", "trust", "other.toml").err
    (away / "phalanx.toml").write_text("[client]\nadress = 'x'\n")
    assert "did you mean client.address?" in cli("config", "trust").err
    assert not trusted().files()


@pytest.mark.parametrize("command", ["up", "coordinator", "runner", "store check", "store backup x"])
def test_what_serves_or_stores_is_refused_rather_than_done_to_something_else(
    cli: Cli,  # noqa: F811
    away: Path,  # noqa: F811
    command: str,
):
    (away / "phalanx.toml").write_text("[coordinator]\nstore = 'etcd://h:2379/x'\n")
    said = cli(*command.split())
    assert said.code == 2
    assert "is not trusted, so it may not set coordinator.store" in said.err
    assert "phalanx config trust" in said.err
    assert not (away.parent / "home/.local/state/phalanx").exists()


@pytest.mark.parametrize("command", ["up", "coordinator"])
def test_how_a_coordinator_schedules_is_not_passed_over(cli: Cli, away: Path, command: str):  # noqa: F811
    (away / "phalanx.toml").write_text("[scheduler]\nscore = 'most-free-cores'\n")
    said = cli(command)
    assert (said.code, "it may not set scheduler.score" in said.err) == (2, True)


def test_down_stops_no_other_cluster(cli: Cli, away: Path):  # noqa: F811
    (away / "phalanx.toml").write_text("state_dir = 'state'\n")
    said = cli("down")
    assert (said.code, "it may not set state_dir" in said.err) == (2, True)
    assert "not trusted" not in cli("down", "--state", "state").err


def test_a_program_is_warned_too(away: Path, token: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    (away / "phalanx.toml").write_text(GUARDED)
    monkeypatch.setenv("PHALANX_ADDRESS", "http://127.0.0.1:9")
    Client()
    monkeypatch.delenv("PHALANX_ADDRESS")
    with (
        pytest.warns(UserWarning, match="phalanx config trust"),
        pytest.raises(Exception, match="no cluster"),
    ):
        Client()


def test_what_a_file_sets_is_read_without_trust(tmp_path: Path):
    assert from_file(tmp_path / "phalanx.toml", GUARDED.encode()) == {
        "client.address": "https://elsewhere:7433"
    }


# Nothing in the clear


@pytest.mark.parametrize(
    "address", ["http://192.0.2.2:19998", "http://localhost.evil.example", "http://[fe80::1]:1"]
)
def test_no_token_goes_over_plain_http_to_another_machine(address: str, token: Path, cli: Cli):  # noqa: F811
    for refuse in (
        lambda: Client(address, "phx_planted"),
        lambda: HttpTransport(["http://127.0.0.1:1", address]),
        lambda: HttpxTransport(address),
    ):
        with pytest.raises(BadRequest, match="expected https, or a loopback") as caught:
            refuse()
        assert "ssh -L" in caught.value.hint
    said = cli("--address", address, "--token-file", str(token), "ps")
    assert said.code == 2
    assert "would send the token unencrypted" in said.err


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "http://LOCALHOST:1", "http://[::1]:1", "https://192.0.2.2:1"]
)
def test_this_machine_and_tls_are_good(address: str):
    HttpTransport(address).close()


def test_a_runner_shows_its_token_in_the_clear_on_this_machine_only():
    check_addresses(("127.0.0.1:7434", "[::1]:7434", "localhost:1"), NO_TLS)
    check_addresses(("head:7434",), TlsFiles(Path("ca.crt")))
    with pytest.raises(ConfigError, match=r"runner.join = 'head:7434' .*expected TLS"):
        check_addresses(("127.0.0.1:7434", "head:7434"), NO_TLS)
