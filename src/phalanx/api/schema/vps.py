"""What travels over REST about VPSs: what is asked for, and what is shown.

A VPS is a job of one task; what it has in common with others is read by `submission.py`.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from msgspec import Struct, structs

from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import Network
from phalanx.api.schema.jobs import RequestView, StatusWord
from phalanx.api.schema.ssh_keys import read_public_keys
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.model.job import SshMode, Vps
from phalanx.core.model.resources import Cores
from phalanx.errors import BadRequest, Unavailable

MODES: tuple[SshMode, ...] = ("upload", "generate", "disabled")


class VpsRequest(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A VPS to be made. `ssh` is upload with `public_key`, otherwise generate, unless it is given."""

    ssh: str | None = None
    public_key: str = ""  # of upload: as authorized_keys has it, one key on each line
    name: str = ""
    targets: list[str] = []  # one, or none for any node
    required_gpus: list[list[int]] | None = None  # device indexes of the target
    cores: Cores = 1
    memory: int | str = 0  # bytes, or "16GiB"
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory: int | str = 0  # per device
    priority: int = 0
    queue: str = "default"
    env: dict[str, str] = {}
    labels: dict[str, str] = {}  # what the node must carry
    require_isolation: bool = False
    tags: dict[str, str] = {}
    network: Network = "node"  # overlay: it has an address of its own
    ip_token: str | None = None  # of a reservation: it has that address, over restarts too
    image: str = ""  # a container, as in a submission; its home is at /home/vps
    mounts: list[str] = []  # what of the node that container sees: SRC:DST[:ro]
    no_queue: bool = False  # refuse at once what cannot start now
    allow_infeasible: bool = False
    request_id: str | None = None
    backend: str = ""  # KohakuRiver's word; there are no virtual machines here


class VpsFields(TypedDict, total=False):
    """All fields of `VpsRequest`, for `create_vps(gpus=2)`."""

    ssh: str | None
    public_key: str
    name: str
    targets: list[str]
    required_gpus: list[list[int]] | None
    cores: Cores
    memory: int | str
    gpus: int
    gpu_type: str | None
    gpu_memory: int | str
    priority: int
    queue: str
    env: dict[str, str]
    labels: dict[str, str]
    require_isolation: bool
    tags: dict[str, str]
    network: Network
    ip_token: str | None
    image: str
    mounts: list[str]
    no_queue: bool
    allow_infeasible: bool
    request_id: str | None


class VpsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    all: bool = False  # also those that have ended


class VpsView(Struct, kw_only=True):
    """One VPS. `ssh_port` and `host_key` are null where it has no SSH."""

    id: str
    number: int  # which names it wherever its id does
    name: str
    user: str
    status: StatusWord
    reason: str
    message: str  # a sentence about the last end, if there was one
    node: str | None  # where it is, or will be again
    ssh: SshMode
    ssh_port: int | None  # of its node, or of its own address
    host_key: str | None  # the public line
    host_key_fingerprint: str | None
    key_fingerprints: list[str]  # of the keys that may log in
    address: str | None  # its own in the overlay network
    image: str | None  # of its container
    request: RequestView
    devices: list[int]
    attempt: int  # 0 before the first
    queue: str
    priority: int
    submitted_at: float
    started_at: float | None
    ended_at: float | None


class NewVps(VpsView, kw_only=True):
    """A VPS that was made. `private_key` is in this answer alone, if its pair was made with it."""

    private_key: str | None = None
    replayed: bool = False  # the same request_id had been answered before: there is no private key then


class SnapshotRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A snapshot by its name: one to be made, restored or removed."""

    name: str = ""  # of a new one it may be left out


class SnapshotView(Struct):
    """An image of a VPS in a container, on its node."""

    name: str
    taken_at: float
    size_bytes: int
    current: bool  # the VPS starts from this one


class StoppedVps(Struct):
    """A VPS that ends; its files are removed with it."""

    id: str
    status: Literal["Cancelled"] = "Cancelled"
    number: int = 0


def read_vps(request: VpsRequest) -> tuple[SubmitRequest, Vps]:
    """What is asked for as a submission, and what makes it a VPS; the keys of `generate` are the caller's to add."""
    _check_backend(request.backend)
    mode = _mode(request)
    keys = read_public_keys("public_key", request.public_key) if mode == "upload" else ()
    same = {field.name for field in structs.fields(SubmitRequest)}
    given = {name: value for name, value in structs.asdict(request).items() if name in same}
    return SubmitRequest(kind="vps", **given), Vps(mode, keys)


def _mode(request: VpsRequest) -> SshMode:
    listed = ", ".join(MODES)
    if request.ssh is None:
        return "upload" if request.public_key else "generate"
    if request.ssh == "none":
        raise BadRequest(
            f"ssh: 'none', a login without a key, does not exist here: give one of {listed}",
            reason="SshModeUnknown",
            hint="disabled has no SSH, and `phalanx vps connect` still opens a shell",
        )
    found = next((mode for mode in MODES if mode == request.ssh), None)
    if found is None:
        raise BadRequest(
            f"ssh: {shown(request.ssh)} is not a mode: give one of {listed}", reason="SshModeUnknown"
        )
    if found == "upload" and not request.public_key.strip():
        raise BadRequest(
            "public_key: ssh = 'upload' needs it: give the content of a file such as id_ed25519.pub",
            reason="KeyMissing",
        )
    if found != "upload" and request.public_key:
        raise BadRequest(f"public_key: ssh = {found!r} takes none: leave it out, or give ssh = 'upload'")
    return found


def _check_backend(backend: str) -> None:
    if backend == "qemu":
        raise Unavailable(
            "no node of this cluster runs virtual machines",
            reason="NoVirtualMachines",
            hint="leave backend out: a VPS is a process on its node",
        )
    if backend not in ("", "process"):
        raise BadRequest(f"backend: {shown(backend)} is not known: give 'process', or leave it out")
