"""What `phalanx top` draws, in Textual's own test terminal and with no cluster behind it."""

from __future__ import annotations

import asyncio

import pytest
from textual.strip import Strip
from textual.widgets import Input

from phalanx import AsyncClient
from phalanx.cli.top.app import TopApp
from phalanx.cli.top.map_view import HeatMapView
from phalanx.cli.top.row_table import RowTable
from phalanx.cli.top.snapshot import ClusterSnapshot
from tests.support.waiting import until
from tests.unit.cli.top.test_top_views import a_device, a_job, a_node, a_snapshot

NOWHERE = "http://127.0.0.1:1"
SEEN = a_snapshot([a_node("n1", a_device(0, "1.0"), a_device(1))], [a_job(1), a_job(2, "Pending")])


def drawn(app: TopApp) -> list[Strip]:
    return app.screen._compositor.render_strips()


async def shown(app: TopApp, snapshot: ClusterSnapshot) -> None:
    app.feed.snapshot = snapshot
    app._show_feed()
    await until(lambda: app.screen.query_one(HeatMapView).place is not None)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_without_colours_every_letter_and_the_chosen_row_can_be_seen(monkeypatch, size):
    monkeypatch.setenv("NO_COLOR", "1")

    async def look() -> None:
        app = TopApp(AsyncClient(NOWHERE, "phx_none"))
        async with app.run_test(size=size) as pilot:
            await shown(app, SEEN)
            await pilot.press("right")
            await pilot.pause()
            segments = [segment for strip in drawn(app) for segment in strip]
            text = "".join(segment.text for segment in segments)
            assert "n1    B>·" in text
            colours = {
                segment.style.color.name for segment in segments if segment.style and segment.style.color
            }
            assert colours <= {"default"}
            await pilot.press("2")
            await until(lambda: app.screen.query_one(RowTable).row_count == 2)
            await pilot.press("end")
            await pilot.pause()
            chosen = [
                segment.text
                for strip in drawn(app)
                for segment in strip
                if segment.style and segment.style.reverse
            ]
            assert any("name1" in each for each in chosen) and not any("name2" in each for each in chosen)

    asyncio.run(look())


def test_the_keys_of_each_view_fit_into_eighty_columns():
    async def look() -> None:
        app = TopApp(AsyncClient(NOWHERE, "phx_none"))
        async with app.run_test(size=(80, 24)) as pilot:
            await shown(app, SEEN)
            for key in "12":
                await pilot.press(key)
                await pilot.pause()
                assert drawn(app)[-1].text.rstrip().endswith("? keys q quit")

    asyncio.run(look())


def test_j_and_k_move_as_the_arrows_do_and_are_letters_where_text_is_typed():
    async def look() -> None:
        app = TopApp(AsyncClient(NOWHERE, "phx_none"))
        async with app.run_test(size=(80, 24)) as pilot:
            await shown(app, SEEN)
            await pilot.press("2")
            await until(lambda: app.screen.query_one(RowTable).row_count == 2)
            table = app.screen.query_one(RowTable)
            rows = []
            for key in "jkj":
                await pilot.press(key)
                await pilot.pause()
                rows.append(table.cursor_row)
            assert rows == [1, 0, 1]
            await pilot.press("slash", "j", "k")
            await until(lambda: app.screen.query(Input) and app.screen.query_one(Input).value == "jk")

    asyncio.run(look())
