"""What follows from the cluster's secret: tokens of tasks, credentials of nodes, host keys, keys of environments.

Coordinators of one cluster share the secret. Every key is derived from it for one purpose, so that none of them reveals
another. To replace it, the new one is written before the old one in the file: what the old one made is still known.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode

from phalanx.coordinator.environment_keys import EnvironmentKeys
from phalanx.core.model.credential import FINGERPRINT_CHARACTERS
from phalanx.core.model.job import is_job_id

TASK = "phx_task_"
NODE = "phx_node_"


class ClusterSecret:
    """Makes and checks what follows from the secret. The secret itself is not kept in memory.

    Those that were the cluster's secret before only check what they made: a token of a task that runs, an environment
    of a job.
    """

    def __init__(self, secret: str, *older: str) -> None:
        self._task = _derived(secret, "phalanx task tokens 1")
        self._node = _derived(secret, "phalanx node credentials 1")
        self._vouchers = _derived(secret, "phalanx login vouchers 1")
        self._vps = _derived(secret, "phalanx vps host keys 1")
        self._older_tasks = [_derived(each, "phalanx task tokens 1") for each in older]
        self.fingerprints = tuple(map(_fingerprint, (secret, *older)))
        self.environments = EnvironmentKeys((secret, *older))

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]

    def task_token(self, job: str) -> str:
        """What the processes of a job may show."""
        return _task_token(self._task, job)

    def job_of(self, token: str) -> str | None:
        """The job that a token was made for, if it was made with this secret."""
        job, _, _ = token.removeprefix(TASK).partition("_")
        if not token.startswith(TASK) or not is_job_id(job):
            return None
        shown, is_ours = token.encode("utf-8", "surrogatepass"), False
        for key in (self._task, *self._older_tasks):
            is_ours |= hmac.compare_digest(_task_token(key, job).encode(), shown)
        return job if is_ours else None

    def node_credential(self, join: str, node: str, origin: str) -> str:
        """What a runner gets for a join token: always the same, so that an answer that was lost can be given again."""
        return NODE + _signed(self._node, f"{join}\x00{node}\x00{origin}")

    def sign_voucher(self, text: str) -> str:
        """What proves to other coordinators that one of them has said this."""
        return _signed(self._vouchers, text)

    def vps_seed(self, job: str) -> bytes:
        """What the host key of a VPS follows from: the same at every coordinator, and kept nowhere."""
        return hmac.new(self._vps, job.encode(), hashlib.sha256).digest()


def _task_token(key: bytes, job: str) -> str:
    return f"{TASK}{job}_{_signed(key, job)}"


def _fingerprint(secret: str) -> str:
    return hashlib.sha256(_derived(secret, "phalanx fingerprint 1")).hexdigest()[:FINGERPRINT_CHARACTERS]


def _derived(secret: str, purpose: str) -> bytes:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).digest()


def _signed(key: bytes, text: str) -> str:
    signature = hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
    return urlsafe_b64encode(signature).decode().rstrip("=")
