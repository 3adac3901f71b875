"""An etcd with restricted access: TLS, users and passwords, and one that has no space left."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.settings import Secret
from phalanx.store.address import StoreAccess
from phalanx.store.etcd.client import EtcdClient
from phalanx.store.etcd.kv import EtcdRefused, EtcdUnavailable
from phalanx.store.etcd.store import EtcdStore
from phalanx.store.protocol import Batch, Candidate, StoreError
from tests.contract.backends import a_batch, bodies
from tests.support.certificate_authority import Authority
from tests.support.servers import EtcdCluster, a_prefix, an_etcd_cluster, program

pytestmark = pytest.mark.anyio
TOKEN_S = 2


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Guarded:
    """Three members behind mutual TLS and passwords. `ada` may do anything under ours/, and nothing elsewhere."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "ca")
        self.server, self.tls_files = authority.coordinator("etcd"), authority.client("ada")
        self.stranger = Authority(folder / "stranger").client("eve")
        self.cluster: EtcdCluster

    @property
    def options(self) -> list[str]:
        options = ["--cert-file", str(self.server.cert_file), "--key-file", str(self.server.key_file)]
        options += ["--trusted-ca-file", str(self.server.ca_file), "--client-cert-auth"]
        return [*options, "--enable-grpc-gateway=false", "--auth-token-ttl", str(TOKEN_S)]

    def set_up(self) -> None:
        self.etcdctl("user", "add", "root:s3cret")
        self.etcdctl("role", "add", "ours")
        self.etcdctl("role", "grant-permission", "ours", "--prefix=true", "readwrite", "ours/")
        self.etcdctl("user", "add", "ada:right")
        self.etcdctl("user", "grant-role", "ada", "ours")
        self.etcdctl("user", "grant-role", "root", "root")
        self.etcdctl("auth", "enable")

    def etcdctl(self, *what: str) -> str:
        hosts = ",".join(f"https://{host}" for host in self.cluster.hosts)
        keys = [
            f"--cacert={self.tls_files.ca_file}",
            f"--cert={self.tls_files.cert_file}",
            f"--key={self.tls_files.key_file}",
        ]
        return etcdctl(hosts, *keys, *what)

    def access(self, password: str | None = "right", **changed) -> StoreAccess:
        tls_files = changed.get("tls_files", self.tls_files)
        user = None if password is None else "ada"
        secret = None if password is None else Secret(password)
        return StoreAccess(
            user, secret, changed.get("ca", tls_files.ca_file), tls_files.cert_file, tls_files.key_file
        )

    async def store(self, access: StoreAccess | None = None, under: str = "ours") -> EtcdStore:
        client = EtcdClient(self.cluster.hosts, access or self.access(), tls=True)
        try:
            return await EtcdStore.open(client, f"{under}/{a_prefix()}")
        except StoreError:
            await client.close()
            raise


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    found = Guarded(tmp_path_factory.mktemp("guarded"))
    with an_etcd_cluster(options=found.options, scheme="https") as found.cluster:
        found.set_up()
        yield found


async def test_a_store_behind_tls_and_a_password(guarded: Guarded):
    store = await guarded.store()
    won = await store.elect(Candidate("ada"), 6.0)
    await store.append(won.epoch, a_batch(1, "n1"), [])
    await store.renew(won.epoch, 6.0)
    assert bodies(await store.load()) == [b"batch 1"]
    await store.resign(won.epoch)
    await store.close()


async def test_a_token_that_is_too_old_is_replaced(guarded: Guarded):
    store = await guarded.store()
    epoch = await store.open_term()
    assert isinstance(store._kv, EtcdClient)
    store._kv._token = (("token", "made.up"),)
    await store.append(epoch, a_batch(1), [])
    guarded.etcdctl(
        "--user=root:s3cret", "role", "add", a_prefix()
    )  # which makes all tokens older than the rules
    await store.append(epoch, a_batch(2), [])
    assert bodies(await store.load()) == [b"batch 1", b"batch 2"]
    await store.close()


async def test_who_may_not_come_in_is_told_why(guarded: Guarded):
    with pytest.raises(EtcdRefused, match="store_password_file"):
        await guarded.store(guarded.access("wrong"))
    with pytest.raises(EtcdRefused, match="readwrite on the whole prefix"):
        await guarded.store(under="elsewhere")


async def test_who_shows_no_certificate_or_a_strange_one_does_not_come_in(guarded: Guarded):
    with pytest.raises(EtcdUnavailable):
        await guarded.store(guarded.access(tls_files=guarded.stranger, ca=guarded.tls_files.ca_file))
    with pytest.raises(EtcdUnavailable):
        await guarded.store(StoreAccess("ada", Secret("right"), guarded.tls_files.ca_file))


async def test_a_server_of_a_strange_authority_is_not_believed(guarded: Guarded):
    with pytest.raises(EtcdUnavailable):
        await guarded.store(guarded.access(ca=guarded.stranger.ca_file))


async def test_a_certificate_that_cannot_be_read_is_named(guarded: Guarded, tmp_path: Path):
    with pytest.raises(StoreError, match=r"gone\.crt"):
        await guarded.store(guarded.access(ca=tmp_path / "gone.crt"))


async def test_an_etcd_without_room_says_so_and_goes_on_when_it_has_room_again():
    with an_etcd_cluster(size=1, options=["--quota-backend-bytes", str(24 << 20)]) as cluster:
        client = EtcdClient(cluster.hosts)
        store = await EtcdStore.open(client, a_prefix())
        won = await store.elect(Candidate("ada"), 30.0)
        with pytest.raises(EtcdRefused, match="NOSPACE"):
            await fill(store, won.epoch)
        await store.renew(won.epoch, 30.0)
        kept = len(await store.story("n1", 0, 1000))
        loaded = await store.load()
        assert kept and loaded.image is not None, "what was written can still be read"
        with pytest.raises(EtcdRefused, match="etcdctl alarm disarm"):
            await store.append(won.epoch, Batch(1000, b"more"), [])
        newest = (await client.range(b"any")).revision
        (host,) = cluster.hosts
        etcdctl(host, "compact", "--physical", str(newest))
        etcdctl(host, "defrag")
        etcdctl(host, "alarm", "disarm")
        await store.load()
        await store.append(won.epoch, Batch(1000, b"more"), [])
        assert (await store.load()).batches[-1].body == b"more"
        await store.close()


async def fill(store: EtcdStore, epoch: int) -> None:
    for revision in range(1, 100):
        await store.append(epoch, a_batch(revision, "n1"), [])
        await store.save_image(epoch, revision, random.Random(revision).randbytes(1 << 20))


def etcdctl(hosts: str, *what: str) -> str:
    command = [program("etcdctl"), f"--endpoints={hosts}", *what]
    done = subprocess.run(
        command, env={"ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, f"{what}: {done.stderr}"
    return done.stdout
