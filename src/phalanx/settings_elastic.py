"""The settings of elastic nodes: when a coordinator disables and enables them. `settings.py` has all the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from phalanx.core.model.amounts import SECONDS_MAX
from phalanx.errors import ConfigError
from phalanx.settings_types import Argument, Count, ElasticMode, Seconds, WebhookUrl, is_loopback


class Elastic(Struct, frozen=True, kw_only=True):
    """When `phalanx coordinator` disables and enables elastic nodes."""

    mode: Annotated[
        ElasticMode,
        "manual, auto (or true) or off (or false)",
        "who disables and enables nodes: people, people and the coordinator by the rules below, or none of them",
    ] = "manual"
    idle_s: Annotated[
        Annotated[float, Meta(ge=0, le=SECONDS_MAX)],
        "a duration such as 60, 60s or 1m, or 0",
        "how long a node runs nothing before it is disabled automatically; 0 = never",
    ] = 60.0
    queue_max: Annotated[Count, "number of waiting tasks up to which nodes are disabled automatically"] = 0
    queue_threshold: Annotated[
        Count, "number of waiting tasks from which a node is enabled automatically; 0 means 1"
    ] = 0
    active_min: Annotated[Count, "number of nodes that stay enabled; at least one does, also with 0"] = 1
    poll_s: Annotated[
        Annotated[float, Meta(ge=5, le=SECONDS_MAX)],
        "a duration of at least 5 s",
        "how often the coordinator looks whether to disable or enable nodes",
    ] = 30.0
    cooldown_s: Annotated[
        Annotated[float, Meta(ge=30, le=SECONDS_MAX)] | None,
        "a duration of at least 30 s",
        "how long a node that was disabled or enabled is left alone; if not set 60 s, or twice poll_s if that is more",
    ] = None
    webhook: Annotated[
        WebhookUrl | None,
        "https://host/path",
        "URL that gets a JSON document when a node is disabled, enabled or needed",
    ] = None
    webhook_token_file: Annotated[Path | None, "a path", "file with a bearer token for the webhook"] = None
    command: Annotated[
        Annotated[tuple[Argument, ...], Meta(max_length=100)],
        'a list such as ["/usr/local/bin/wake", "--fast"]',
        "program that gets the same document on its standard input; no shell is involved",
    ] = ()
    notify_timeout_s: Annotated[Seconds, "how long the webhook or the program may take, each time"] = 10.0

    def __post_init__(self) -> None:
        if self.webhook_token_file is not None and self.webhook is None:
            raise ConfigError("elastic.webhook_token_file is set, but elastic.webhook is not")
        host = re.match(r"http://(\[[^]]*\]|[^:/]*)", self.webhook or "")
        if self.webhook_token_file is not None and host and not is_loopback(host[1].strip("[]")):
            raise ConfigError(
                f"elastic.webhook = {self.webhook!r}: expected https because a token is sent there",
                hint="give an https address, or leave elastic.webhook_token_file out",
            )

    @property
    def left_alone_s(self) -> float:
        """The cooldown, given or not."""
        return max(60.0, 2 * self.poll_s) if self.cooldown_s is None else self.cooldown_s
