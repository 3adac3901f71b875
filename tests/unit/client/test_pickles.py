"""Functions, arguments and results as bytes: what travels, and what is said of what cannot."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor

import pytest

from phalanx.api.schema.calls import CALL_BYTES_MAX, CallResult
from phalanx.client import pickles
from phalanx.client.pickles import CallLost, RemoteTraceback, error_of, pickle_arguments, pickle_function
from phalanx.errors import CallFailed
from phalanx.worker import call_process


def test_equal_functions_have_equal_digests():
    assert pickle_function(len) == pickle_function(len)
    assert pickle_function(len).digest != pickle_function(abs).digest


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, "a", None, True), {}), (([1],), {}), ((1,), {"b": lambda: 2})]
)
def test_arguments_come_as_they_were(args, kwargs):
    got_args, got_kwargs = pickle.loads(pickle_arguments(print, args, kwargs))
    assert got_args == args
    assert list(got_kwargs) == list(kwargs)


def test_an_argument_that_cannot_travel_names_its_function():
    with pytest.raises(CallFailed, match="an argument of print cannot be pickled") as caught:
        pickle_arguments(print, (threading.Lock(),), {})
    assert caught.value.reason == "ArgumentsNotPicklable"
    assert isinstance(caught.value.__cause__, TypeError)


def test_an_argument_that_is_too_large_is_told_with_the_limit():
    with pytest.raises(CallFailed, match=f"at most {CALL_BYTES_MAX} are allowed"):
        pickle_arguments(print, (bytes(CALL_BYTES_MAX),), {})


def test_an_exception_comes_with_its_traceback():
    error = error_of(CallResult(1, "raised", pickle.dumps(KeyError("k")), "Traceback: ..."))
    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert error.__cause__.text == "Traceback: ..."


def test_what_raised_is_never_lost_whatever_it_was():
    assert "the text" in str(error_of(CallResult(1, "raised", b"", "the text")))
    assert "the text" in str(error_of(CallResult(1, "raised", b"not a pickle", "the text")))
    assert isinstance(error_of(CallResult(1, "raised", pickle.dumps(3), "the text")), CallFailed)


def test_a_lost_call_is_what_a_broken_pool_is():
    error = error_of(CallResult(1, "died", text="SIGKILL", code="CallLost"))
    assert isinstance(error, CallLost)
    assert isinstance(error, BrokenExecutor)
    assert error.reason == "CallLost"


def test_both_ends_have_the_same_limits_and_plain_types():
    from phalanx.api.schema import calls

    assert call_process.RESULT_BYTES_MAX == calls.RESULT_BYTES_MAX
    assert call_process.TEXT_MAX == calls.TEXT_MAX
    assert call_process.PLAIN == pickles.PLAIN


def test_importing_the_client_does_not_import_cloudpickle():
    program = "import sys, phalanx; phalanx.Client, phalanx.Executor; print('cloudpickle' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


@pytest.mark.parametrize("args", [("x" * CALL_BYTES_MAX,), ([b"x" * CALL_BYTES_MAX],)])
def test_what_is_too_large_is_told_in_a_sentence(args):
    with pytest.raises(
        CallFailed, match=r"^\d+ bytes are too many for (the arguments|an argument) of print"
    ) as caught:
        pickle_arguments(print, args, {})
    assert caught.value.reason == "CallTooLarge"
