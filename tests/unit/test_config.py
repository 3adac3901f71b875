"""Settings: which source wins, what is refused and how, and what a token file must be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from phalanx.client.access import reach_by
from phalanx.config import TASK_VARIABLE, load, task_environment, trusted
from phalanx.endpoint import Endpoint, connection
from phalanx.errors import ConfigError, TokenError, Unauthorized, Unavailable
from phalanx.settings import KEYS, VARIABLES, Secret, Settings
from phalanx.settings_aliases import ALIASES
from phalanx.tokenfile import ensure_token, first_token, read_token, read_tokens
from tests.support.certificate_authority import Authority

Read = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Load with these variables, in tmp_path/work, with a home and a system folder beside it."""
    (tmp_path / "work").mkdir()

    def call(flags: dict[str, object] | None = None, /, **variables: str) -> Settings:
        env = {"HOME": str(tmp_path / "home")} | variables
        return load(flags, environment=env, folder=tmp_path / "work", system=tmp_path / "etc")

    return call


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_trusted(path: Path, text: str, home: Path) -> Path:
    """A project file that the user of this home trusts."""
    write(path, text)
    trusted({"HOME": str(home)}).add(path, path.read_bytes())
    return path


def a_token_file(path: Path, text: str = "phx_secret\n", mode: int = 0o600) -> Path:
    write(path, text).chmod(mode)
    return path


# Where values come from


def test_defaults(read: Read, tmp_path: Path):
    settings = read()
    state = tmp_path / "home/.local/state/phalanx"
    assert settings.state_dir == state
    assert settings.output == "table"
    assert (settings.coordinator.bind, settings.coordinator.port) == ("127.0.0.1", 7433)
    assert (settings.coordinator.link_port, settings.runner.join) == (7434, ("127.0.0.1:7434",))
    assert (settings.coordinator.heartbeat_s, settings.coordinator.lost_after_s) == (5.0, 30.0)
    assert (settings.coordinator.max_task_retries, settings.coordinator.loss_limit) == (3, 5)
    assert settings.coordinator.pending_limit == 10_000_000
    assert settings.coordinator.state_dir == state / "coordinator"
    assert settings.runner.state_dir == state / "runners" / settings.runner.name
    assert settings.runner.token_file == settings.coordinator.node_token_file == state / "node-credentials"
    assert settings.runner.log_max_bytes == 64 << 20
    assert settings.given == {}


def test_each_source_beats_the_next(read: Read, tmp_path: Path):
    text = "[coordinator]\nport = {}\n"
    sources = [
        (write(tmp_path / "etc/phalanx.toml", text.format(1001)), 1001),
        (write(tmp_path / "etc/conf.d/10-a.toml", text.format(1002)), 1002),
        (write(tmp_path / "etc/conf.d/20-b.toml", text.format(1003)), 1003),
        (write(tmp_path / "home/.config/phalanx/config.toml", text.format(1004)), 1004),
        (write_trusted(tmp_path / "phalanx.toml", text.format(1005), tmp_path / "home"), 1005),
    ]
    env = {"PHALANX_COORDINATOR_PORT": "1006"}
    settings = read({"coordinator.port": 1007}, **env)
    assert settings.coordinator.port == 1007
    assert read(**env).coordinator.port == 1006
    given = [(each.source, each.value) for each in settings.given["coordinator.port"]]
    assert given == [
        ("the command line", 1007),
        ("PHALANX_COORDINATOR_PORT", 1006),
        *((str(path), port) for path, port in reversed(sources)),
    ]
    for path, port in reversed(sources):
        assert read().coordinator.port == port
        path.unlink()
    assert read().coordinator.port == 7433


def test_sources_are_joined_key_by_key(read: Read, tmp_path: Path):
    write_trusted(tmp_path / "phalanx.toml", "output = 'json'\n[runner]\nname = 'box'\n", tmp_path / "home")
    settings = read({"runner.pretend": "gpus=2"}, PHALANX_RUNNER_LOG_MAX_BYTES="1MiB")
    assert (settings.output, settings.runner.name) == ("json", "box")
    assert (settings.runner.pretend, settings.runner.log_max_bytes) == ("gpus=2", 1 << 20)


def test_the_nearest_project_file_is_taken(read: Read, tmp_path: Path):
    write(tmp_path / "phalanx.toml", "output = 'json'\n")
    write(tmp_path / "work/pyproject.toml", "[tool.ruff]\n")
    assert read().output == "json"
    write(tmp_path / "work/pyproject.toml", "[tool.phalanx]\noutput = 'yaml'\n")
    assert read().output == "yaml"
    write(tmp_path / "work/phalanx.toml", "output = 'name'\n")
    assert read().output == "name"


def test_a_project_file_of_a_stranger_is_refused(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "phalanx.toml", "[client]\naddress = 'http://127.0.0.1:6666'\n")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        read()


def test_xdg_folders_are_honoured_when_absolute(read: Read, tmp_path: Path):
    write(tmp_path / "c/phalanx/config.toml", "output = 'wide'\n")
    settings = read(XDG_CONFIG_HOME=str(tmp_path / "c"), XDG_STATE_HOME=str(tmp_path / "s"))
    assert (settings.output, settings.state_dir) == ("wide", tmp_path / "s/phalanx")
    assert read(XDG_STATE_HOME="relative").state_dir == tmp_path / "home/.local/state/phalanx"


def test_relative_paths_begin_where_they_are_written(read: Read, tmp_path: Path):
    write_trusted(tmp_path / "phalanx.toml", "state_dir = 'state'\n", tmp_path / "home")
    assert read().state_dir == tmp_path / "state"
    assert read(PHALANX_STATE_DIR="state").state_dir == tmp_path / "work/state"
    assert read({"state_dir": Path("/var/lib/phalanx")}).state_dir == Path("/var/lib/phalanx")


def test_the_seeds_names_are_understood(read: Read, tmp_path: Path):
    settings = read(
        KRISHIV_COORDINATOR="http://head:50051",
        KRISHIV_COORDINATOR_BEARER_TOKEN="secret",
        KRISHIV_MAX_TASK_RETRIES="7",
        KRISHIV_HEARTBEAT_TIMEOUT_SECS="45",
        KRISHIV_SOMETHING_ELSE="is none of our business",
    )
    assert (settings.client.address, settings.client.token) == (("http://head:50051",), "secret")
    assert settings.coordinator.token == "secret"
    assert (settings.coordinator.max_task_retries, settings.coordinator.lost_after_s) == (7, 45.0)
    assert read(KRISHIV_COORDINATOR="a:1", PHALANX_ADDRESS="b:2").client.address == ("http://b:2",)


@pytest.mark.parametrize(
    ("written", "scheme"),
    [
        ("grpc://", "grpc://"),
        ("grpc+tcp://", "grpc://"),
        ("grpc+tls://", "grpcs://"),
        ("grpcs://", "grpcs://"),
        ("http://", "http://"),
        ("", "http://"),
    ],
)
@pytest.mark.parametrize("variable", ["KRISHIV_COORDINATOR", "PHALANX_ADDRESS"])
def test_an_address_may_be_one_of_grpc(read: Read, variable: str, written: str, scheme: str):
    settings = read(**{variable: f"{written}head:50051, {written}127.0.0.1:50052"})
    assert settings.client.address == (f"{scheme}head:50051", f"{scheme}127.0.0.1:50052")


@pytest.mark.parametrize(
    "address", ["grpc://head", "grpc+udp://head:1", "grpc://head:1/path", "grpc://a:b@head:1"]
)
def test_what_is_no_address_of_grpc_is_refused(read: Read, address: str):
    with pytest.raises(ConfigError, match="from KRISHIV_COORDINATOR: expected http"):
        read(KRISHIV_COORDINATOR=address)


def test_grpc_is_off_and_shares_its_port_with_nobody(read: Read):
    assert read().coordinator.grpc_port is None
    assert read({"coordinator.grpc_port": 7435}).coordinator.grpc_port == 7435
    for other in ("port", "link_port"):
        with pytest.raises(ConfigError, match=f"coordinator.{other} and coordinator.grpc_port are both 7000"):
            read({"coordinator.grpc_port": 7000, f"coordinator.{other}": 7000})


def test_where_others_reach_a_node_is_a_host(read: Read):
    assert read().runner.address is None
    assert read(PHALANX_RUNNER_ADDRESS="10.0.0.7").runner.address == "10.0.0.7"
    assert read({"runner.address": "fd00::7"}).runner.address == "fd00::7"
    with pytest.raises(ConfigError, match="expected a host name or IP address"):
        read(PHALANX_RUNNER_ADDRESS="http://n1:80")


def test_every_alias_means_a_key_and_every_key_has_a_variable():
    assert {key for keys in ALIASES.values() for key in keys} <= set(KEYS)
    assert set(VARIABLES.values()) == set(KEYS)
    assert {"PHALANX_ADDRESS", "PHALANX_TOKEN", "PHALANX_TOKEN_FILE", "PHALANX_STATE_DIR"} <= set(VARIABLES)
    assert not any(TASK_VARIABLE.fullmatch(name) for name in VARIABLES)


def test_variables_of_tasks_are_left_alone(read: Read):
    read(
        PHALANX_JOB_ID="x",
        PHALANX_JOB_NUMBER="17",
        PHALANX_TASK_ID="x.1",
        PHALANX_ATTEMPT="1",
        PHALANX_EPOCH="3",
        PHALANX_DEADLINE="9",
        PHALANX_RESULT="/x/result",
        PHALANX_ARTIFACTS="/x/artifacts",
        PHALANX_SCRATCH_DIR="/x/scratch",
    )


# What is refused


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("PHALANX_COORDINATOR_PORT", "http", "a port from 1 to 65535"),
        ("PHALANX_COORDINATOR_PORT", "0", "a port from 1 to 65535"),
        ("PHALANX_COORDINATOR_PORT", "70000", "a port from 1 to 65535"),
        ("PHALANX_COORDINATOR_PORT", "", "a port from 1 to 65535"),
        ("PHALANX_COORDINATOR_HEARTBEAT_S", "5 apples", "a duration such as"),
        ("PHALANX_COORDINATOR_HEARTBEAT_S", "-1", "a duration such as"),
        ("PHALANX_COORDINATOR_LOSS_LIMIT", "-1", "a whole number"),
        ("PHALANX_RUNNER_LOG_MAX_BYTES", "64 bananas", "a size in bytes"),
        ("PHALANX_RUNNER_NAME", "Not A Name", "lower-case letters"),
        ("PHALANX_RUNNER_JOIN", "nowhere", "host:port"),
        ("PHALANX_RUNNER_JOIN", "host:99999", "host:port"),
        ("PHALANX_ADDRESS", "http://host:1/path", "http://host:port"),
        ("PHALANX_ADDRESS", "ftp://host:1", "http://host:port"),
        ("PHALANX_OUTPUT", "xml", "table, json, yaml, wide or name"),
        ("PHALANX_STATE_DIR", "", "a path"),
        ("PHALANX_TOKEN_FILE", "", "a path"),
    ],
)
def test_a_wrong_value_is_told_with_its_key_source_and_remedy(
    read: Read, variable: str, text: str, expected: str
):
    with pytest.raises(ConfigError) as caught:
        read(**{variable: text})
    message = caught.value.detail
    assert message.startswith(f"{VARIABLES[variable]} = {text!r} from {variable}: expected ")
    assert expected in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[coordinator]\nport = '7433x'", "coordinator.port"),
        ("[coordinator]\nport = true", "coordinator.port = True"),
        ("[coordinator]\nhosts = 3", "coordinator.hosts"),
        ("[coordinator]\nheartbeat_s = nan", "coordinator.heartbeat_s"),
        (f"[coordinator]\nport = 0x{'f' * 5000}", "a huge number"),
        ("coordinator = 3", "coordinator in"),
        ("output = ", "cannot be read"),
        ("[client]\ntoken = 'phx_x'", "client.token is set in"),
        ("[coordinator]\nlost_after_s = 6", "at least 10, twice coordinator.heartbeat_s = 5"),
        ("[coordinator]\nlink_port = 7433", "are both 7433"),
    ],
)
def test_a_wrong_file_is_told(read: Read, tmp_path: Path, text: str, complaint: str):
    write_trusted(tmp_path / "phalanx.toml", text, tmp_path / "home")
    with pytest.raises(ConfigError) as caught:
        read()
    assert complaint in caught.value.detail


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [("PHALANX_COORDINATR_PORT", "PHALANX_COORDINATOR_PORT"), ("PHALANX_TOKENFILE", "PHALANX_TOKEN_FILE")],
)
def test_an_unknown_variable_gets_a_suggestion(read: Read, wrong: str, suggestion: str):
    with pytest.raises(ConfigError, match="unknown variable") as caught:
        read(**{wrong: "x"})
    assert caught.value.hint == f"did you mean {suggestion}?"


def test_an_unknown_key_gets_a_suggestion(read: Read, tmp_path: Path):
    write(tmp_path / "phalanx.toml", "[coordinator]\nheartbeat = 5\n")
    with pytest.raises(ConfigError, match=r"unknown key 'coordinator.heartbeat' in .*phalanx.toml") as caught:
        read()
    assert caught.value.hint == "did you mean coordinator.heartbeat_s?"
    write(tmp_path / "phalanx.toml", "zzz = 5\n")
    with pytest.raises(ConfigError, match="unknown key 'zzz'") as caught:
        read()
    assert "config show" in caught.value.hint


def test_values_may_have_units(read: Read):
    settings = read(
        PHALANX_COORDINATOR_LOST_AFTER_S="1m30s", PHALANX_COORDINATOR_HOSTS="a.example, b.example"
    )
    assert settings.coordinator.lost_after_s == 90.0
    assert settings.coordinator.hosts == ("a.example", "b.example")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head:7433", "http://head:7433"),
        ("https://head.example/", "https://head.example"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_an_address_may_be_short(read: Read, text: str, address: str):
    assert read(PHALANX_ADDRESS=text).client.address == (address,)


def test_several_addresses_stand_in_one_setting(read: Read):
    assert read(PHALANX_ADDRESS="a:1, https://b:2").client.address == ("http://a:1", "https://b:2")
    assert read(PHALANX_RUNNER_JOIN="a:1,b:2").runner.join == ("a:1", "b:2")


@pytest.mark.parametrize("bind", ["0.0.0.0", "example.org", "10.0.0.1"])
def test_other_machines_are_listened_to_with_tls_only(read: Read, tmp_path: Path, bind: str):
    with pytest.raises(ConfigError, match=r"coordinator.bind = .*expected a loopback address"):
        read(PHALANX_COORDINATOR_BIND=bind)
    tls = {"PHALANX_COORDINATOR_TLS_CERT_FILE": "c.pem", "PHALANX_COORDINATOR_TLS_KEY_FILE": "k.pem"}
    assert read(PHALANX_COORDINATOR_BIND=bind, **tls).coordinator.bind == bind


# Tokens


def test_a_token_is_made_once_and_for_us_alone(tmp_path: Path):
    path = tmp_path / "new" / "credentials"
    token = ensure_token(path)
    assert token.startswith("phx_")
    assert len(token) == 4 + 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert ensure_token(path) == token
    assert [each.name for each in path.parent.iterdir()] == ["credentials"]


def test_those_who_make_it_at_once_agree(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(ensure_token, [tmp_path / "credentials"] * 32))
    assert len(tokens) == 1


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that every account may enter, from the root on. Those of pytest are closed."""
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_token_that_others_may_read_is_refused(outside: Path, mode: int):
    with pytest.raises(TokenError, match="others may use") as caught:
        read_token(a_token_file(outside / "t", mode=mode))
    assert caught.value.hint == f"chmod 600 {outside}/t"
    assert caught.value.exit_code == 77


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o444])
def test_a_mode_that_lets_others_read_does_no_harm_in_a_folder_they_cannot_enter(outside: Path, mode: int):
    file = a_token_file(outside / "in/t", mode=mode)
    for closed in (0o700, 0o744):
        outside.chmod(closed)
        assert read_token(file) == "phx_secret"
    for entered in (0o710, 0o701, 0o711):
        outside.chmod(entered)
        with pytest.raises(TokenError, match="others may use"):
            read_token(file)


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o622])
def test_a_token_that_others_may_write_is_refused_everywhere(outside: Path, mode: int):
    outside.chmod(0o700)
    with pytest.raises(TokenError, match="others may use"):
        read_token(a_token_file(outside / "t", mode=mode))


def test_a_secret_of_kubernetes_is_read_where_it_is_shut_in(outside: Path):
    """Files 0644 in a folder ..TIME, ..data leads there, and each name leads through ..data."""
    (outside / "shut").mkdir(mode=0o700)
    for place in (outside / "shut/secret", outside / "secret"):
        a_token_file(place / "..2026_11_15/token", mode=0o644)
        (place / "..data").symlink_to("..2026_11_15")
        (place / "token").symlink_to("..data/token")
        place.chmod(0o1777)
    assert read_token(outside / "shut/secret/token") == "phx_secret"
    with pytest.raises(TokenError, match="others may use"):
        read_token(outside / "secret/token")
    (outside / "shut/out").symlink_to("../secret/token")
    with pytest.raises(TokenError, match="others may use"):
        read_token(outside / "shut/out")


@pytest.mark.parametrize("text", ["", "\n", "two words", "ümlaut", "x" * 5000])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str):
    with pytest.raises(TokenError, match="holds no token"):
        read_token(a_token_file(tmp_path / "t", text))


def test_a_file_may_hold_several_tokens_of_which_the_first_is_shown(tmp_path: Path):
    file = a_token_file(tmp_path / "t", " a,b \n\n c,\na\n")
    assert read_tokens(file) == ("a", "b", "c")
    assert first_token(file) == ensure_token(file) == "a"
    assert read_tokens(a_token_file(file, "\n")) == ()
    with pytest.raises(TokenError, match="holds no token"):
        first_token(file)


@pytest.mark.parametrize("text", ["two words", "a,b\x00", "x" * 5000, "\n".join(map(str, range(1001)))])
def test_a_file_of_something_else_than_tokens_is_refused(tmp_path: Path, text: str):
    with pytest.raises(TokenError, match="something else"):
        read_tokens(a_token_file(tmp_path / "t", text))


def test_of_a_file_of_json_it_is_said_what_the_file_should_hold(tmp_path: Path):
    for read in (read_token, read_tokens, first_token):
        with pytest.raises(TokenError) as refused:
            read(a_token_file(tmp_path / "t", '{"token": "phx_abc", "name": "ada b"}'))
        assert "the token alone" in refused.value.hint
        assert "JSON" in refused.value.hint


def test_what_is_no_file_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
        for read in (read_token, read_tokens):
            with pytest.raises(TokenError):
                read(path)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot write"):
        ensure_token(tmp_path / "file" / "credentials")


def test_a_token_does_not_show_itself(read: Read):
    settings = read(PHALANX_TOKEN="phx_secret", PHALANX_ADDRESS="h:1")
    assert "phx_secret" not in repr(settings)
    assert "phx_secret" not in repr(connection(settings))
    assert connection(settings).token == "phx_secret"
    with pytest.raises(ConfigError) as caught:
        read(PHALANX_TOKEN="phx_sec ret")
    assert "phx_sec" not in caught.value.detail


def test_tasks_inherit_where_programs_are_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    kept = {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "USER": "ada",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "LC_TIME": "C",
        "TZ": "UTC",
        "VIRTUAL_ENV": "/venv",
        "CONDA_PREFIX": "/conda",
        "CONDA_DEFAULT_ENV": "base",
    }
    for name in list(os.environ):
        monkeypatch.delenv(name)
    secrets = ("WANDB_API_KEY", "PHALANX_TOKEN", "KRISHIV_COORDINATOR_BEARER_TOKEN", "AWS_SECRET_ACCESS_KEY")
    for name, text in kept.items():
        monkeypatch.setenv(name, text)
    for name in (*secrets, "CUDA_HOME", "LD_PRELOAD", "XPATH", "PATHS", "PYTHONPATH"):
        monkeypatch.setenv(name, "planted")
    assert task_environment() == kept


# Connections


def announce(state: Path, address: str = "http://127.0.0.1:7433") -> Endpoint:
    a_token_file(state / "credentials", "phx_local")
    write(
        state / "endpoint.json",
        f'{{"address": "{address}", "link": "127.0.0.1:7434", "token_file": "{state}/credentials", "pid": 1}}',
    )
    return Endpoint(address, "127.0.0.1:7434", f"{state}/credentials", 1)


def test_the_cluster_that_runs_here(read: Read, tmp_path: Path):
    settings = read({"state_dir": tmp_path / "state"})
    with pytest.raises(Unavailable, match="no cluster is running here"):
        connection(settings)
    announce(tmp_path / "state")
    file = tmp_path / "state" / "credentials"
    assert connection(settings) == (("http://127.0.0.1:7433",), "phx_local", file)


def test_a_command_inside_a_task_reaches_its_cluster_unless_another_is_named(read: Read, tmp_path: Path):
    task = {"PHALANX_TASK_ADDRESS": "http://c1:7433", "PHALANX_TASK_TOKEN": "phx_task_1_x"}
    state = {"state_dir": tmp_path / "state"}
    assert connection(read(state, **task)) == (("http://c1:7433",), "phx_task_1_x", None)
    for lacking in task:  # one alone is of no use
        with pytest.raises(Unavailable, match="no cluster is running here"):
            connection(read(state, **{name: value for name, value in task.items() if name != lacking}))
    own = read(state, **task, PHALANX_ADDRESS="http://127.0.0.1:7000", PHALANX_TOKEN="phx_mine")
    assert connection(own) == (("http://127.0.0.1:7000",), "phx_mine", None)
    announce(tmp_path / "state")
    assert connection(read(state, **task)).token == "phx_local", "its folder is named"
    announce(tmp_path / "home" / "phalanx")
    here = {"XDG_STATE_HOME": str(tmp_path / "home")}
    assert connection(read(**here)).token == "phx_local"
    assert connection(read(**here, **task)).token == "phx_task_1_x", "not that of whoever has the same home"


def test_a_task_verifies_its_cluster_by_the_certificates_of_its_node(read: Read, tmp_path: Path):
    ca_file = str(Authority(tmp_path / "ca").alone.ca_file)
    task = {"PHALANX_TASK_ADDRESS": "https://c1:7433", "PHALANX_TASK_TOKEN": "phx_task_1_x"}
    task["PHALANX_TASK_CA_FILE"] = ca_file
    found = reach_by(read({"state_dir": tmp_path / "state"}, **task))
    assert (str(found.tls_files.ca_file), found.vouched) == (ca_file, True)
    other = {"PHALANX_ADDRESS": "https://c2:7433", "PHALANX_TOKEN": "phx_mine"}
    assert reach_by(read({"state_dir": tmp_path / "state"}, **task, **other)).tls_files.ca_file is None


def test_the_token_of_this_machine_is_shown_to_nobody_else(read: Read, tmp_path: Path):
    announce(tmp_path / "state")
    flags: dict[str, object] = {"state_dir": tmp_path / "state"}
    with pytest.raises(Unauthorized, match="no token for http://elsewhere:7433"):
        connection(read(flags, PHALANX_ADDRESS="elsewhere:7433"))
    with pytest.raises(Unauthorized):
        connection(read(flags, PHALANX_ADDRESS="localhost.example:7433"))
    assert connection(read(flags, PHALANX_ADDRESS="127.0.0.1:9999")).token == "phx_local"


def test_a_token_file_beats_a_token_of_the_same_strength(read: Read, tmp_path: Path):
    file = str(a_token_file(tmp_path / "t", "from-file"))
    settings = read(PHALANX_ADDRESS="h:1", PHALANX_TOKEN_FILE=file, PHALANX_TOKEN="from-variable")
    assert connection(settings).token == "from-file"


def test_a_token_beats_a_file_of_less_strength(read: Read, tmp_path: Path):
    a_token_file(tmp_path / "t", "from-file")
    write_trusted(
        tmp_path / "phalanx.toml", "[client]\ntoken_file = 't'\naddress = 'http://h:1'\n", tmp_path / "home"
    )
    assert connection(read(PHALANX_TOKEN="from-variable")).token == "from-variable"
    assert connection(read()).token == "from-file"
    other = a_token_file(tmp_path / "u", "from-flag")
    assert connection(read({"client.token_file": other}, PHALANX_TOKEN="x")).token == "from-flag"


def test_an_unreadable_token_file_is_never_passed_over(read: Read, tmp_path: Path):
    announce(tmp_path / "state")
    settings = read(
        {"state_dir": tmp_path / "state"}, PHALANX_TOKEN_FILE=str(tmp_path / "missing"), PHALANX_TOKEN="other"
    )
    with pytest.raises(TokenError, match="cannot be read"):
        connection(settings)


def test_an_announcement_that_cannot_be_read_is_told(read: Read, tmp_path: Path):
    write(tmp_path / "state/endpoint.json", "{")
    with pytest.raises(ConfigError, match=r"endpoint.json cannot be read"):
        connection(read({"state_dir": tmp_path / "state"}))


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("coordinator.store", "etcd://ada:planted@h:2379/x"),
        ("client.address", "http://ada:planted@h:1"),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(read: Read, key: str, address: str):
    with pytest.raises(ConfigError, match=r"://\(hidden\)@h.* expected") as caught:
        read({key: address})
    assert "planted" not in str(caught.value)


def test_a_secret_is_a_string_that_hides():
    assert f"{Secret('x')!r} {Secret('x')}" == "(hidden) x"
