"""The sentences on the methods of `Client`, for those of `AsyncClient`: what a call does is the same in both."""

from __future__ import annotations

import inspect


def share_docstrings(source: type, target: type) -> None:
    """Give each public method of `target` that says nothing of itself the sentence of its twin in `source`."""
    for each in target.__mro__:
        for name, method in vars(each).items():
            if not name.startswith("_") and inspect.isfunction(method) and method.__doc__ is None:
                method.__doc__ = getattr(getattr(source, name, None), "__doc__", None)
