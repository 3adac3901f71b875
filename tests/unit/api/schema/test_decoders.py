"""Decoders: many threads may meet a form for the first time at once."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, because it would not fail but crash. New forms in every round: each is met once.
SCRIPT = """
import sys, threading
from msgspec import defstruct
from phalanx.client.calls import Call

sys.setswitchinterval(1e-6)
for _ in range(100):
    inner = defstruct("Inner", [(f"f{number}", "int | None", None) for number in range(20)])
    more = [(f"f{number}", "list[int] | None", None) for number in range(20)]
    call = Call(method="GET", path="/", answer=defstruct("Outer", [("inner", inner), *more]))
    together = threading.Barrier(4)

    def ask(call=call, together=together):
        together.wait()
        assert call.read(200, {}, b'{"inner": {"f1": 7}, "f3": [1]}').inner.f1 == 7

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("whole")
"""


def test_threads_that_read_their_first_answer_at_once_do_not_crash():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
