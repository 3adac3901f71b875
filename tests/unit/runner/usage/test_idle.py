"""When a device counts as idle: by its mean over the whole time that is looked at."""

from __future__ import annotations

import pytest

from phalanx.runner.usage.idle import IdleRule, IdleWindow

RULE = IdleRule(use_below=0.05, after_s=100.0)


def fed(window: IdleWindow, use: float, seconds: float, every_s: float = 5.0) -> IdleWindow:
    for _ in range(round(seconds / every_s)):
        window.add(use, every_s)
    return window


def test_a_device_is_idle_after_so_long_and_not_before():
    window = fed(IdleWindow(RULE), 0.01, 95.0)
    assert window.idle_s == 0.0
    window.add(0.01, 5.0)
    assert window.idle_s == pytest.approx(100.0)
    assert fed(window, 0.01, 50.0).idle_s == pytest.approx(150.0)


def test_one_that_works_in_bursts_is_not_idle():
    window = IdleWindow(RULE)
    for _ in range(20):
        fed(fed(window, 0.0, 20.0), 1.0, 5.0)
        assert window.idle_s == 0.0


def test_one_that_is_used_again_is_not_idle_any_more():
    window = fed(IdleWindow(RULE), 0.0, 200.0)
    assert window.idle_s
    assert fed(window, 1.0, 10.0).idle_s == 0.0


def test_without_a_time_nothing_is_ever_idle():
    assert fed(IdleWindow(IdleRule(after_s=0.0)), 0.0, 1e5, every_s=100.0).idle_s == 0.0
