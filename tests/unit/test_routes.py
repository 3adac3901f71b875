"""A subnet that would hide a route of the machine is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.routes import check_subnet, routes

TABLE = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
docker0	0000800A	00000000	0001	0	0	0	0000FFFF	0	0	0
phxabcdefv	0004C00A	01048C0A	0003	0	0	0	00FCFFFF	0	0	0
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "route"
    path.write_text(TABLE)
    return path


def test_routes_are_read_with_their_links(table: Path):
    assert [(str(network), link) for network, link in routes(table)] == [
        ("0.0.0.0/0", "eth0"), ("192.0.2.0/24", "eth0"), ("10.128.0.0/16", "docker0"), ("10.192.4.0/22", "phxabcdefv"),
    ]  # fmt: skip
    assert list(routes(Path("/nonexistent"))) == []


@pytest.mark.parametrize("subnet", ["10.128.0.0/12", "10.128.4.0/22", "192.0.0.0/8"])
def test_a_subnet_that_overlaps_a_route_is_refused(table: Path, subnet: str):
    with pytest.raises(ConfigError, match=r"overlay\.subnet"):
        check_subnet(subnet, table)


def test_the_default_route_and_our_own_links_do_not_count(table: Path):
    check_subnet("10.192.0.0/12", table)
