"""Everything public of the Python client says what it does, and `submit` says what is wrong with its arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import phalanx
from phalanx import errors
from phalanx.api.schema.submit_fields import SweepFields
from phalanx.client.async_client import share_docstrings
from phalanx.client.submit_names import NAMES


@pytest.mark.parametrize("name", [name for name in phalanx.__all__ if name[0].isupper()])
def test_every_public_class_and_method_has_a_sentence(name: str):
    found = getattr(phalanx, name)
    assert inspect.getdoc(found)
    if inspect.isclass(found):
        methods = [each for each, value in inspect.getmembers(found, callable) if not each.startswith("_")]
        assert [each for each in methods if not inspect.getdoc(getattr(found, each))] == []


def test_an_async_method_has_the_sentence_of_its_twin_unless_it_has_one():
    class Source:
        def ask(self) -> None:
            """Ask."""

        def tell(self) -> None:
            """Tell."""

    class Target:
        async def ask(self) -> None: ...

        async def tell(self) -> None:
            """Tell later."""

        async def alone(self) -> None: ...

    share_docstrings(Source, Target)
    assert (Target.ask.__doc__, Target.tell.__doc__, Target.alone.__doc__) == ("Ask.", "Tell later.", None)


def test_help_of_submit_lists_every_field():
    for client in (phalanx.Client, phalanx.AsyncClient):
        told = inspect.getdoc(client.submit) or ""
        missing = [name for name in (*SweepFields.__annotations__, *NAMES) if name not in told]
        assert missing == []


def test_every_error_is_a_name_of_the_package():
    classes = inspect.getmembers(errors, inspect.isclass)
    found = {name for name, each in classes if each.__module__ == errors.__name__}
    assert found
    assert found <= set(phalanx.__all__)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("python train.py",), r"submit\(\['python train.py', …\]\), or shell='…'"),
        (("echo", "hello"), r"as one list: submit\(\['echo', …\]\)"),
        ((print, 3), r"functions run in an Executor: phalanx.Executor\(client\).submit\(print, …\)"),
        ((17,), "takes a list, a SubmitRequest, or fields"),
    ],
)
def test_what_is_no_request_is_told_what_would_be(given: tuple[Any, ...], told: str):
    client = phalanx.Client("http://127.0.0.1:9", "phx_x")
    with pytest.raises(TypeError, match=told):
        client.submit(*given)
