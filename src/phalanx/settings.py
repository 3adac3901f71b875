"""All settings: key, type, purpose, default, accepted values, and which of them must agree with each other.

Which source wins, and how texts become values, is `config.py`'s business. An address holds no user and no
password, so that no token stands in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from msgspec import Meta, Struct

from phalanx.errors import ConfigError
from phalanx.settings_elastic import Elastic
from phalanx.settings_health import HealthSettings
from phalanx.settings_overlay import OverlaySettings
from phalanx.settings_proxy import ProxySettings
from phalanx.settings_scheduler import Scheduler
from phalanx.settings_types import (
    Addresses,
    BucketSeconds,
    CgroupsFor,
    Cost,
    Count,
    CpusOfTasks,
    FilesUrl,
    Folder,
    Host,
    IdleSeconds,
    LinkPort,
    LinkPorts,
    Name,
    Port,
    Seconds,
    Share,
    Size,
    StoreUrl,
    Text,
    TextOrEmpty,
    Url,
    UsageSeconds,
    VariablePattern,
    is_loopback,
)


class Secret(str):
    """A token. Its repr hides it, so that no log line or traceback holds it by accident."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(hidden)"


Output = Literal["table", "json", "yaml", "wide", "name"]


class CoordinatorSettings(ProxySettings, frozen=True, kw_only=True):
    """What `phalanx coordinator` needs."""

    state_dir: Annotated[Folder, "folder of the coordinator's database"]
    store: Annotated[
        StoreUrl, "store of the cluster's state; sqlite: alone means a file in the state folder"
    ] = "sqlite:"
    store_ca_file: Annotated[Path | None, "a path", "CA file used to verify etcd or Redis"] = None
    store_cert_file: Annotated[Path | None, "a path", "client certificate for etcd or Redis"] = None
    store_key_file: Annotated[Path | None, "a path", "private key of store_cert_file"] = None
    store_user: Annotated[Text | None, "one line of text", "user name for etcd or Redis"] = None
    store_password_file: Annotated[Path | None, "a path", "file with the password of store_user"] = None
    name: Annotated[Name, "name of this coordinator, unique and stable across restarts"]
    lease_s: Annotated[
        Seconds, "leader lease: how long before a standby may take over from a silent leader"
    ] = 6.0
    advertise: Annotated[
        Url | None, "https://host:port", "address at which clients reach this coordinator"
    ] = None
    link_advertise: Annotated[
        LinkPort | None, "host:port", "address at which runners reach this coordinator"
    ] = None
    secret_file: Annotated[
        Folder, "file with the cluster secret, the same for all coordinators; created at the first start"
    ]
    token: Annotated[Secret | None, "a token", "an API token for users; a file is safer"] = None
    tokens: Annotated[Secret | None, "tokens separated by commas", "more API tokens for users"] = None
    token_file: Annotated[
        Folder, "file with API tokens for users; created at the first start, reloaded when changed"
    ]
    node_token: Annotated[Secret | None, "a token", "a token for runners; a file is safer"] = None
    node_token_file: Annotated[Folder, "file with tokens for runners; created at the first start"]
    auth_reload_interval_s: Annotated[Seconds, "how often token files and certificates are reloaded"] = 60.0
    audit_file: Annotated[Folder, "file of the audit log"]
    tls_cert_file: Annotated[Path | None, "a path", "certificate of all ports"] = None
    tls_key_file: Annotated[Path | None, "a path", "private key of tls_cert_file"] = None
    tls_ca_file: Annotated[
        Path | None,
        "a path",
        "CA of the certificates that runners, and all gRPC clients, must present (mutual TLS)",
    ] = None
    bind: Annotated[Host, "a host name or IP address", "address to listen on, for all ports"] = "127.0.0.1"
    port: Annotated[Port, "port of the REST API"] = 7433
    link_port: Annotated[Port, "port that runners connect to"] = 7434
    grpc_port: Annotated[
        Port | None, "a port from 1 to 65535", "port of the gRPC interface; off if not set"
    ] = None
    hosts: Annotated[
        tuple[Text, ...], "a list of names", "additional accepted values of the Host header"
    ] = ()
    heartbeat_s: Annotated[Seconds, "interval of the runners' heartbeats"] = 5.0
    lost_after_s: Annotated[Seconds, "how long a node may be silent before it is declared lost"] = 30.0
    brake_share: Annotated[
        Share, "if more than this fraction of nodes is silent at once, none is declared lost"
    ] = 0.55
    breaker_failures: Annotated[
        Count, "consecutive failures, of several users, after which a node is temporarily excluded; 0 = never"
    ] = 5
    breaker_pause_s: Annotated[Seconds, "how long it is excluded"] = 60.0
    max_task_retries: Annotated[Count, "default number of retries of a task"] = 3
    executors_file: Annotated[
        Path | None, "a path", "file that says which program each task type of workflows means"
    ] = None
    not_exported: Annotated[
        tuple[VariablePattern, ...],
        "a list of names of variables, or prefixes such as AWS_*",
        "variables that are never exported from users' environments to tasks, besides those that never are",
    ] = ()
    loss_limit: Annotated[Count, "how often a task may lose its node before it fails"] = 5
    aging_s: Annotated[Count, "seconds of waiting per point of priority (aging); 0 = off"] = 0
    pending_limit: Annotated[Count, "maximum number of waiting tasks; beyond it submits are rejected"] = (
        10_000_000
    )
    session_idle_s: Annotated[
        Seconds, "how long nothing may happen in a session (exec, attach, port-forward) before it is ended"
    ] = 3600.0
    keep_events: Annotated[Count, "number of events kept for stories"] = 1_000_000
    keep_jobs: Annotated[Count, "number of ended jobs kept"] = 1_000_000
    metrics_dir: Annotated[
        Path | None, "a path", "folder for metrics.json, events.log and final_report.json; none if not set"
    ] = None
    metrics_density: Annotated[
        bool,
        "true or false",
        "write task_worker_density.json; to <state_dir>/metrics if metrics_dir is not set",
    ] = False
    metrics_density_bucket_s: Annotated[
        BucketSeconds, "length of an interval in which submissions are counted for the density file"
    ] = 60.0
    # Its variable is other programs' as well, and read by every command; the coordinator alone checks the value.
    traces: Annotated[
        TextOrEmpty | None,
        "http://host:4318",
        "OpenTelemetry collector for traces of jobs and workflows (OTLP over HTTP); off if not set",
    ] = None
    files: Annotated[
        FilesUrl | None,
        "file:///shared/folder or s3://bucket/prefix",
        "where logs, large results and artifacts are kept; by default a folder in the state folder",
    ] = None
    files_endpoint: Annotated[
        Url | None, "https://host:port", "address of an S3 server other than Amazon's"
    ] = None
    files_region: Annotated[Text | None, "one line of text", "region of the S3 bucket"] = None
    files_keep_s: Annotated[Seconds, "how long files of attempts are kept"] = 30 * 86_400.0
    files_keep_bytes: Annotated[Size, "maximum size of all files; the oldest are deleted first"] = 20 << 30
    files_max_bytes: Annotated[Size, "maximum size of one file"] = 10 << 30

    def __post_init__(self) -> None:
        if self.lost_after_s < 2 * self.heartbeat_s:  # One late report would lose a node.
            raise ConfigError(
                f"coordinator.lost_after_s = {self.lost_after_s:g}: expected at least {2 * self.heartbeat_s:g},"
                f" twice coordinator.heartbeat_s = {self.heartbeat_s:g}",
                hint="`phalanx config explain coordinator.lost_after_s` says where it comes from",
            )
        if self.port == self.link_port:
            raise ConfigError(f"coordinator.port and coordinator.link_port are both {self.port}")
        if self.grpc_port in (self.port, self.link_port):
            other = "port" if self.grpc_port == self.port else "link_port"
            raise ConfigError(f"coordinator.{other} and coordinator.grpc_port are both {self.grpc_port}")
        if not is_loopback(self.bind) and self.tls_cert_file is None:
            raise ConfigError(
                f"coordinator.bind = {self.bind!r}: expected a loopback address because TLS is off",
                hint="give coordinator.tls_cert_file and tls_key_file (`phalanx ca` makes them), or use ssh -L",
            )
        self.check_proxy()
        _check_pair("coordinator.tls", self.tls_cert_file, self.tls_key_file)
        _check_pair("coordinator.store", self.store_cert_file, self.store_key_file)


class RunnerSettings(HealthSettings, frozen=True, kw_only=True):
    """What `phalanx runner` needs."""

    name: Annotated[Name, "the node's name"]
    state_dir: Annotated[Folder, "folder of the runner's outbox and of its tasks' logs"]
    work_dir: Annotated[Folder, "default working directory of tasks"]
    token: Annotated[Secret | None, "a token", "token for the coordinator; a file is safer"] = None
    token_file: Annotated[
        Folder, "file with the token for the coordinator, used until the node has its own credential"
    ]
    join: Annotated[LinkPorts, "link addresses of the coordinators"] = ("127.0.0.1:7434",)
    tls_ca_file: Annotated[Path | None, "a path", "CA file used to verify coordinators"] = None
    tls_cert_file: Annotated[Path | None, "a path", "the node's certificate"] = None
    tls_key_file: Annotated[Path | None, "a path", "private key of tls_cert_file"] = None
    pretend: Annotated[Text | None, "one line of text", "simulated hardware, such as gpus=8,cpus=64"] = None
    address: Annotated[
        Host | None, "a host name or IP address", "address at which other nodes reach this one"
    ] = None
    vps_address: Annotated[
        Host | None,
        "a host name or IP address",
        "address of this node at which VPSs listen for SSH, besides 127.0.0.1",
    ] = None
    labels: Annotated[Text | None, "one line of text", "labels of the node, such as rack=r1;zone=a"] = None
    cost_per_hour: Annotated[
        Cost | None,
        "a number from 0 to 1000000",
        "what an hour of this node costs; 1.0 is assumed if not set",
    ] = None
    slots: Annotated[
        Annotated[int, Meta(ge=0, le=1)],
        "0 or 1",
        "1 = one task at a time, which is given all cores and memory of this node; 0 = as many as find room",
    ] = 0
    log_max_bytes: Annotated[Size, "maximum size of one stream of one attempt"] = 64 << 20
    cgroups: Annotated[
        CgroupsFor,
        "every-task or memory",
        "which tasks get a cgroup, where allowed: every task, or only those that request memory",
    ] = "every-task"
    accounts: Annotated[
        Text | None,
        "same-name, or user=account;user=account",
        "accounts that tasks run as, by the user who submitted them, such as alice=alice;bob=lab (*=lab for all"
        " others); the runner must be root; without it tasks have the runner's account",
    ] = None
    allow_root: Annotated[bool, "true or false", "whether runner.accounts may name root"] = False
    keepers: Annotated[
        Annotated[int, Meta(ge=0, le=64)],
        "0 to 64",
        "processes that start tasks on this node; 0 = one for every two cores, at most 8",
    ] = 0
    cpus: Annotated[
        CpusOfTasks,
        "own or any",
        "own = a task with whole cores gets CPUs of its own, the others share the rest; any = all run on all CPUs",
    ] = "own"
    pids_max: Annotated[
        Count, "maximum number of processes and threads of one task, where cgroups allow it; 0 = no limit"
    ] = 4096
    watch_memory: Annotated[
        bool,
        "true or false",
        "whether a task that is seen above the memory it asked for is ended, where no cgroup can hold it",
    ] = False
    container_socket: Annotated[
        Text,
        "a path, auto or none",
        "socket of podman or Docker, which run tasks with an image; auto = the usual ones, none = no containers",
    ] = "auto"
    container_mounts: Annotated[
        Text | None,
        "folders with ';' between them",
        "folders below which users may mount files and folders into their containers; without it none",
    ] = None
    cdi_kind: Annotated[
        Text,
        "VENDOR/CLASS or none",
        "kind of this node's devices in CDI specifications, by which containers get them; none = device nodes only",
    ] = "nvidia.com/gpu"
    image_limit_s: Annotated[Seconds, "how long an image may take to be pulled or loaded"] = 600.0
    device_nodes: Annotated[
        Text | None,
        "INDEX=/dev/PATH,/dev/PATH;INDEX=…",
        "device nodes of each device, to be closed to tasks without it; those of NVIDIA devices are found",
    ] = None
    scratch_max_bytes: Annotated[
        Size | None, "a size in bytes, or such as 64MiB", "maximum size of one task's scratch folder"
    ] = None
    log_keep_s: Annotated[Seconds, "how long the logs of ended attempts are kept on the node"] = 30 * 86_400.0
    log_keep_bytes: Annotated[Size, "maximum size of all logs of the node; the oldest are deleted first"] = (
        20 << 30
    )
    artifacts_max_bytes: Annotated[Size, "maximum size of all artifacts of one attempt"] = 10 << 30
    artifacts_max_count: Annotated[Count, "maximum number of artifacts of one attempt"] = 10_000
    usage_interval_s: Annotated[
        UsageSeconds, "how often usage is sampled; less often where many tasks run"
    ] = 5.0
    idle_device_use: Annotated[Share, "mean utilisation below which a held device counts as idle"] = 0.05
    idle_device_after_s: Annotated[IdleSeconds, "how long it must be so before `nodes` and `why` warn"] = (
        900.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_pair("runner.tls", self.tls_cert_file, self.tls_key_file)


class ClientSettings(Struct, frozen=True, kw_only=True):
    """What every other command needs to reach a cluster."""

    address: Annotated[
        Addresses | None,
        "http://host:port or grpc://host:port, or several separated by commas",
        "address of the cluster, if not that of `phalanx up`",
    ] = None
    token_file: Annotated[Path | None, "a path", "file with the API token"] = None
    token: Annotated[Secret | None, "a token", "API token; token_file is safer and takes precedence"] = None
    ca_file: Annotated[Path | None, "a path", "CA file used to verify coordinators"] = None
    cert_file: Annotated[Path | None, "a path", "client certificate, if the cluster requires one"] = None
    key_file: Annotated[Path | None, "a path", "private key of cert_file"] = None

    def __post_init__(self) -> None:
        _check_pair("client.", self.cert_file, self.key_file)


class Given(NamedTuple):
    """The value of one key in one source; a lower rank takes precedence."""

    value: Any
    source: str
    rank: int


class Untrusted(NamedTuple):
    """A project file that was not trusted, and its keys that are therefore ignored."""

    file: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.keys[:5]) + (f" and {len(self.keys) - 5} more" if len(self.keys) > 5 else "")
        return f"{self.file} is not trusted, so it may not set {shown}"


TRUST_HINT = "read it, then trust it as it is now: `phalanx config trust`"


class TaskAccess(NamedTuple):
    """What a task was given to read its own job with, and the other stages of its workflow."""

    address: str
    token: Secret
    ca_file: Path | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, resolved. `given` holds the value of each key in each source, in order of precedence."""

    state_dir: Annotated[Folder, "state folder of the cluster started by `phalanx up`"]
    output: Annotated[Output, "table, json, yaml, wide or name", "output format"] = "table"
    coordinator: CoordinatorSettings
    scheduler: Scheduler
    elastic: Elastic
    overlay: OverlaySettings
    runner: RunnerSettings
    client: ClientSettings
    given: dict[str, tuple[Given, ...]] = {}
    untrusted: Untrusted | None = None
    task: TaskAccess | None = None


class Key(NamedTuple):
    """One setting: the type it is read as, what that expects, what it is for, and its variable."""

    type: Any
    expected: str
    purpose: str
    variable: str


def _keys(prefix: str, section: type) -> Iterator[tuple[str, Key]]:
    for name, hint in get_type_hints(section, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            *_, expected, purpose = hint.__metadata__
            variable = "PHALANX_" + (prefix.removeprefix("client.") + name).replace(".", "_").upper()
            yield prefix + name, Key(hint, expected, purpose, variable)


SECTIONS = {
    "coordinator": CoordinatorSettings,
    "scheduler": Scheduler,
    "elastic": Elastic,
    "overlay": OverlaySettings,
    "runner": RunnerSettings,
    "client": ClientSettings,
}
KEYS = dict(_keys("", Settings)) | {k: v for s in SECTIONS for k, v in _keys(f"{s}.", SECTIONS[s])}
VARIABLES = {key.variable: name for name, key in KEYS.items()}
_TOKENS = ("token", "tokens", "node_token")
SECRETS = {"client.token", "runner.token"} | {f"coordinator.{name}" for name in _TOKENS}
_PROXY = {"coordinator.trusted_proxy", "coordinator.trusted_proxy_roles"}
LISTS = {"coordinator.hosts", "coordinator.not_exported", "runner.join", "client.address"} | _PROXY


def _check_pair(what: str, cert: Path | None, key: Path | None) -> None:
    if (cert is None) != (key is None):
        sign = "" if what.endswith(".") else "_"
        raise ConfigError(f"{what}{sign}cert_file and {what}{sign}key_file: give both or neither")
