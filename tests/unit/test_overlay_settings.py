"""The settings of the overlay network: what cannot be is refused at the start."""

from __future__ import annotations

import pytest

from phalanx.errors import ConfigError
from phalanx.settings_overlay import OverlaySettings


def test_what_is_not_enabled_is_not_checked():
    assert OverlaySettings().mode == "off"
    OverlaySettings(subnet="10.128.0.5/12")


@pytest.mark.parametrize(
    ("subnet", "prefix", "said"),
    [
        ("10.0.0.0/4", 22, "prefix length from 8 to 26"),
        ("10.128.0.5/12", 22, "host bits set"),
        ("10.128.0.0/24", 22, "a block cannot be larger"),
        ("10.300.0.0/12", 22, "not permitted"),
        ("127.0.0.0/8", 22, "loopback"),
        ("169.254.0.0/16", 22, "link-local"),
        ("224.0.0.0/8", 22, "multicast"),
        ("240.0.0.0/8", 22, "reserved"),
    ],
)
def test_a_subnet_that_cannot_be_is_refused(subnet: str, prefix: int, said: str):
    with pytest.raises(ConfigError, match=said):
        OverlaySettings(mode="enabled", subnet=subnet, block_prefix=prefix)
