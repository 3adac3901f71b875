"""An S3 server on loopback for tests: moto's, over HTTP, one for the whole run. Each test makes a bucket of its own."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import urllib.request
from functools import cache

from tests.support.servers import a_free_port, a_prefix
from tests.support.waiting import wait_until

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """One process of moto's server."""

    def __init__(self) -> None:
        self.port = a_free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | CREDENTIALS,
        )
        atexit.register(self._process.kill)
        wait_until(self._answers, 60.0, "the S3 server does not answer")

    def a_bucket(self) -> str:
        name = a_prefix()
        self.asked(name, "PUT")
        return name

    def unfinished(self, bucket: str) -> bytes:
        """What the server says of uploads that were begun and neither finished nor ended."""
        return self.asked(f"{bucket}?uploads", "GET")

    def asked(self, path: str, method: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def _answers(self) -> bool | None:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return None
        return True


@cache
def shared_s3() -> S3Server:
    """One for the whole run of this process."""
    return S3Server()
