"""A load process: sixteen kept-alive connections, each submitting one job after another.

Reads JSON on stdin: port, token, count. It writes to stdout how long the count took; a refusal ends it.
"""

from __future__ import annotations

import json
import select
import sys
import time

from bench.keepalive import Connection, Refused, split_answer

CONNECTIONS = 16
_BODY = json.dumps({"command": ["/bin/true"]}).encode()


def submit_all(port: int, token: str, count: int) -> float:
    """The seconds until so many submits were answered."""
    connections = {each.sock.fileno(): each for each in (Connection(port, token) for _ in range(CONNECTIONS))}
    request = next(iter(connections.values())).request("POST", "/v1/jobs", _BODY)
    received = dict.fromkeys(connections, b"")
    poll = select.epoll()
    for fd in connections:
        poll.register(fd, select.EPOLLIN)
    began = time.perf_counter()
    for connection in connections.values():
        connection.sock.sendall(request)
    sent, answered = CONNECTIONS, 0
    while answered < count:
        for fd, _ in poll.poll():
            received[fd] += connections[fd].sock.recv(65536)
            answer = split_answer(received[fd])
            if answer is None:
                continue
            if answer[0] != 202:
                raise Refused(answer[1].decode())
            received[fd] = b""
            answered += 1
            if sent < count:
                connections[fd].sock.sendall(request)
                sent += 1
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps({"seconds": submit_all(**json.loads(sys.stdin.readline()))}))
