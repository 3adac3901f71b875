"""The types of settings: what a value may be, and the words that say so where it is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from phalanx.core.model.amounts import SECONDS_MAX

LOOPBACK = r"(?:localhost|::1|127(?:\.[0-9]{1,3}){3})"
_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_URL = rf"https?://{_HOST}(?::{_PORT})?"

# The sentence beside a type says what is expected.
Port = Annotated[int, Meta(ge=1, le=65535), "a port from 1 to 65535"]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000), "a whole number from 0 to 1000000000"]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX), "a duration such as 30, 30s or 1m30s"]
BucketSeconds = Annotated[float, Meta(ge=1, le=86_400), "a duration from 1s to 1d"]
UsageSeconds = Annotated[float, Meta(ge=1, le=3600), "a duration from 1s to 1h"]
IdleSeconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX), "a duration such as 15m, or 0 for never"]
Cost = Annotated[float, Meta(ge=0, le=1_000_000), "a number from 0 to 1000000"]
Weight = Annotated[float, Meta(ge=0, le=1), "a number from 0 to 1"]
Share = Annotated[float, Meta(gt=0, le=1), "a fraction, such as 0.55"]
Size = Annotated[int, Meta(ge=1, le=1 << 60), "a size in bytes, or such as 64MiB"]
SizeOrNone = Annotated[int, Meta(ge=0, le=1 << 60)]
Text = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z"), "one line of text"]
TextOrEmpty = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z"), "one line of text, or nothing"]
Name = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\Z"),
    "lower-case letters, digits, '.', '_' and '-', such as n-1.rack-2",
]
VariablePattern = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?\Z")
]  # a name, or a prefix with a star
Url = Annotated[str, Meta(pattern=rf"^{_URL}\Z")]
ApiAddress = Annotated[str, Meta(pattern=rf"^(?:{_URL}|grpcs?://{_HOST}:{_PORT})\Z")]
Addresses = Annotated[tuple[ApiAddress, ...], Meta(min_length=1, max_length=16)]
Host = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,253}|[0-9A-Fa-f:.]{2,45})\Z")]
LinkPort = Annotated[str, Meta(pattern=rf"^{_HOST}:{_PORT}\Z")]
LinkPorts = Annotated[
    tuple[LinkPort, ...], Meta(min_length=1, max_length=16), "host:port, or several separated by commas"
]
StoreUrl = Annotated[
    str,
    Meta(pattern=r"^(sqlite:[^\x00-\x1f\x7f?#]*|memory:|(etcds?|rediss?)://[^\x00-\x20\x7f@?#]+)\Z"),
    "sqlite:PATH, etcd://h1:2379,h2:2379/prefix, redis://host:6379/prefix (etcds, rediss: with TLS) or memory:",
]
WebhookUrl = Annotated[str, Meta(pattern=rf"^{_URL}(?:/[!-~]*)?\Z", max_length=2000)]
Argument = Annotated[str, Meta(pattern=r"^[^\x00]+\Z", max_length=4096)]
FilesUrl = Annotated[
    str,
    Meta(
        pattern=r"^(file:///[^\x00-\x1f\x7f?#%]*|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]{0,200})?)\Z"
    ),
    "file:///shared/folder or s3://bucket/prefix",
]
Folder = Annotated[Path, "a path"]
Score = Literal[
    "pack", "most-free-cores"
]  # those of core/model/score.py, which the CLI has no time to import
CgroupsFor = Literal["every-task", "memory"]
CpusOfTasks = Literal["own", "any"]
ElasticMode = Literal["off", "manual", "auto"]  # those of core/model/elastic.py


def is_loopback(host: str) -> bool:
    """Whether what is sent there in the clear stays on this machine."""
    return re.fullmatch(LOOPBACK, host, re.IGNORECASE) is not None
