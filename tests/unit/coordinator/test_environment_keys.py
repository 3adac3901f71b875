"""Sealing environments: the same bytes for the same content, readable with the secret alone, and with an older one."""

from __future__ import annotations

import pytest

from phalanx.coordinator.environment_keys import (
    CannotOpen,
    EnvironmentKeys,
    TaskEnvironment,
    is_of_another_key,
)

CONTENT = TaskEnvironment({"PATH": "/usr/bin", "TOKEN": "tops3cret\nwith a second line"}, {"LR": "0.1"})
KEYS = EnvironmentKeys(("a secret",))


def test_what_was_sealed_is_opened_and_says_nothing_before():
    _, sealed = KEYS.seal("ada", CONTENT)
    assert KEYS.open("ada", sealed) == CONTENT
    assert b"tops3cret" not in sealed
    assert b"PATH" not in sealed


def test_the_same_is_sealed_the_same_whatever_its_order_and_whoever_asks():
    other = TaskEnvironment(dict(reversed(CONTENT.exported.items())), CONTENT.env)
    assert EnvironmentKeys(("a secret",)).seal("ada", other) == KEYS.seal("ada", CONTENT)
    assert KEYS.seal("bob", CONTENT)[0] != KEYS.seal("ada", CONTENT)[0]
    assert KEYS.seal("ada", TaskEnvironment(CONTENT.env, CONTENT.exported))[0] != KEYS.seal("ada", CONTENT)[0]


def test_a_digest_needs_the_secret():
    assert EnvironmentKeys(("another",)).seal("ada", CONTENT)[0] != KEYS.seal("ada", CONTENT)[0]


def test_an_older_secret_still_opens_and_the_first_one_seals():
    digest, sealed = KEYS.seal("ada", CONTENT)
    rotated = EnvironmentKeys(("a new secret", "a secret"))
    assert rotated.open("ada", sealed) == CONTENT
    new, resealed = rotated.seal("ada", CONTENT)
    assert is_of_another_key(new, digest)
    assert EnvironmentKeys(("a new secret",)).open("ada", resealed) == CONTENT


def test_who_has_not_the_key_is_told_which_it_takes():
    _, sealed = KEYS.seal("ada", CONTENT)
    with pytest.raises(CannotOpen, match=sealed[1:5].hex()):
        EnvironmentKeys(("another",)).open("ada", sealed)


@pytest.mark.parametrize("at", [0, 3, 6, 40, -1])
def test_changed_bytes_are_not_opened(at: int):
    _, sealed = KEYS.seal("ada", CONTENT)
    changed = bytearray(sealed)
    changed[at] ^= 1
    with pytest.raises(CannotOpen):
        KEYS.open("ada", bytes(changed))


def test_bytes_of_another_users_job_are_not_opened():
    _, sealed = KEYS.seal("ada", CONTENT)
    with pytest.raises(CannotOpen):
        KEYS.open("bob", sealed)


def test_what_is_remembered_is_bounded():
    keys = EnvironmentKeys(("a secret",))
    for number in range(300):
        keys.seal("ada", TaskEnvironment({"N": str(number)}))
    assert len(keys._remembered) == 256
