"""The cluster's secret: what its coordinators share, and what is made from it.

Every key is derived from it for one purpose, so that none of them tells another. A job's token, and the credential a
node gets for a join token, are made again by whoever has the secret; neither is kept anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode

from phalanx.core.model.credential import FINGERPRINT_CHARACTERS
from phalanx.core.model.ids import is_job_id

TASK = "phx_task_"
NODE = "phx_node_"


class ClusterSecret:
    """Makes and checks what follows from the secret. The secret itself is not kept in memory."""

    def __init__(self, secret: str) -> None:
        self._task = _derived(secret, "phalanx task tokens 1")
        self._node = _derived(secret, "phalanx node credentials 1")
        public = _derived(secret, "phalanx fingerprint 1")
        self.fingerprint = hashlib.sha256(public).hexdigest()[:FINGERPRINT_CHARACTERS]

    def task_token(self, job: str) -> str:
        """What the processes of a job may show."""
        return f"{TASK}{job}_{_signed(self._task, job)}"

    def job_of(self, token: str) -> str | None:
        """The job that a token was made for, if it was made with this secret."""
        job, _, _ = token.removeprefix(TASK).partition("_")
        if not token.startswith(TASK) or not is_job_id(job):
            return None
        is_ours = hmac.compare_digest(self.task_token(job).encode(), token.encode("utf-8", "surrogatepass"))
        return job if is_ours else None

    def node_credential(self, join: str, node: str, origin: str) -> str:
        """What a runner gets for a join token: always the same, so that an answer that was lost can be given again."""
        return NODE + _signed(self._node, f"{join}\x00{node}\x00{origin}")


def _derived(secret: str, purpose: str) -> bytes:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).digest()


def _signed(key: bytes, text: str) -> str:
    signature = hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
    return urlsafe_b64encode(signature).decode().rstrip("=")
