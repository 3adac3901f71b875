"""For all tests: hypothesis profiles, which test begins when, a logger left as it was, and a collector that rests.

The profile `ci` is that of every run, `quick` of `make check`, and `nightly` is for a long one:

pytest tests/property --hypothesis-profile=nightly --timeout=0
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import late_grpc, schedule

# Some tests fork, as the keeper does, in a process where others have used gRPC: its threads must not begin again there.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

late_grpc.note_late_words()

# What a shell starts in the background ignores SIGINT, and so would all commands that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline per example would only measure how busy the machine is.
settings.register_profile(
    "calm", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
_calm = settings.get_profile("calm")

settings.register_profile("ci", _calm, max_examples=50, stateful_step_count=50)
settings.register_profile("quick", _calm, max_examples=15, stateful_step_count=30)
settings.register_profile("nightly", _calm, max_examples=5000, stateful_step_count=100)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write transcripts and screens anew, so that the diff is reviewed",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    schedule.sort(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What all tests share is never garbage: so the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return schedule.scheduler(config, log)


@pytest.fixture(autouse=True)
def logger_as_before() -> Iterator[None]:
    """A daemon that was started inside a test or a fixture configures the logger; each test finds it as it was."""
    root = logging.getLogger("phalanx")
    root.handlers[:], root.level, root.propagate = [], logging.NOTSET, True
    yield
    root.handlers[:], root.level, root.propagate = [], logging.NOTSET, True
