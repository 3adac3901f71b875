"""A struct whose fields are the options of a command: written once, for every command that takes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from msgspec import Struct, structs

from phalanx.errors import PhalanxError

F = TypeVar("F", bound=Callable[..., object])

FLAGS = {
    "at_once": "--limit",
    "gang_wait": "--gang-wait",
    "gpu_memory": "--gpu-memory",
    "gpu_type": "--gpu-type",
    "ip_token": "--ip-token",
    "max_retries": "--retries",
    "min_run": "--min-run",
    "no_queue": "--no-queue",
    "params": "--param",
    "request_id": "--request-id",
    "time_limit": "--time-limit",
}
FIELD = re.compile(rf"^({'|'.join(FLAGS)})\b(\.?)")  # params.lr is --param lr


def with_options(form: type[Struct], hidden: Sequence[str] = ()) -> Callable[[F], F]:
    """Give a command `(ctx, options, **more)` the fields of `form` as options beside its own, as Typer reads them.

    Its help leaves out the `hidden` ones, which it refuses with a sentence.
    """

    def given_options(command: F) -> F:
        own = inspect.signature(command, eval_str=True).parameters
        hints = get_type_hints(form, include_extras=True)
        kind = inspect.Parameter.KEYWORD_ONLY
        wished = [
            inspect.Parameter(
                field.name,
                kind,
                default=field.default,
                annotation=_hidden(hints[field.name]) if field.name in hidden else hints[field.name],
            )
            for field in structs.fields(form)
        ]
        beside = [each.replace(kind=kind) for name, each in own.items() if name != "options"]

        def called(**given: Any) -> object:
            options = form(**{each.name: given.pop(each.name) for each in wished})
            try:
                return command(options=options, **given)
            except PhalanxError as error:  # of the API, which has other names for some options
                if error.detail.startswith(tuple(_files(options))):
                    raise
                error.detail = FIELD.sub(
                    lambda found: FLAGS[found[1]] + found[2].replace(".", " "), error.detail
                )
                raise

        called.__doc__ = command.__doc__
        called.__name__ = command.__name__
        vars(called)["__signature__"] = inspect.Signature([*beside, *wished])
        return called  # type: ignore[return-value]

    return given_options


def _files(options: Struct) -> list[str]:
    """The files that options name, such as params.csv: an error that begins so is about the file."""
    values = structs.asdict(options).values()
    return [value for value in values if isinstance(value, str) and "." in value]


def _hidden(annotated: Any) -> Any:
    """The same option, not shown by the help."""
    kind, option = get_args(annotated)
    option = copy(option)
    option.hidden = True
    return Annotated[kind, option]
