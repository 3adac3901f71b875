"""Names and ids: what they may look like, and how a task's id is made from its job's.

Job ids are ULIDs in lower case, made by the coordinator's shell (time and chance are not ours). The task
of a plain job shares the job's id; the tasks of an array are `job.index`. Ids may be shortened by people to
any unique prefix, which the shell resolves. A text with a slash names an object of Kubernetes.
"""

from __future__ import annotations

import re

JobId = str
NodeName = str

NAME_MAX = 63
OBJECT_MAX = 63 + 1 + 253
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_JOB_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def is_name(text: str) -> bool:
    """True for what may name a job, node or queue, which also keeps terminals safe."""
    return _NAME.fullmatch(text) is not None


def is_object(text: str) -> bool:
    """True for what names an object of Kubernetes with its namespace, such as default/pod-1."""
    return _OBJECT.fullmatch(text) is not None


def is_job_id(text: str) -> bool:
    """True for a whole job id."""
    return _JOB_ID.fullmatch(text) is not None


def ulid(at_ms: int, chance: int) -> JobId:
    """A job id from a time in milliseconds and 80 random bits; ids made later sort later."""
    number = (at_ms & (1 << 48) - 1) << 80 | chance & (1 << 80) - 1
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
