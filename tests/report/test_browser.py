"""The page in a browser: it runs without a complaint, answers the pointer and the keyboard, and its tables sort."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.report.page import page
from lowtide.report.tradeoff_svg import Point, Points
from lowtide.units import format_bytes
from tests.browser import browser
from tests.planning.test_blocks import traced
from tests.plans import random_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return random_plan(traced("in place"), 2)


@pytest.fixture(scope="module")
def opened(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    """The page at 1200 px, and what it complained of."""
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(plan, Points("", "", (Point(plan.total_peak_bytes, plan.slowdown),))), encoding="utf-8")
    with browser() as b:
        tab = b.new_page(viewport={"width": 1200, "height": 900})
        tab.complaints = []
        tab.on("console", lambda m: tab.complaints.append(m.text))
        tab.on("pageerror", lambda e: tab.complaints.append(str(e)))
        tab.on("request", lambda r: tab.complaints.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        tab.goto(path.as_uri())
        yield tab
        assert tab.complaints == []


def test_it_opens_without_a_complaint_and_fits_the_window(opened: Any) -> None:
    assert opened.complaints == []
    for width in (1200, 1366, 700):
        opened.set_viewport_size({"width": width, "height": 900})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.set_viewport_size({"width": 1200, "height": 900})


def test_the_headline_is_the_plans(opened: Any, plan: Plan) -> None:
    card = opened.locator(".card", has_text="Peak, everything in").inner_text()
    assert format_bytes(plan.total_peak_bytes) in card
    assert format_bytes(simulate(plan.step).total_peak_bytes) in card


def test_the_pointer_shows_what_is_there(opened: Any, plan: Plan) -> None:
    timeline = simulate(plan.step, plan)
    svg = opened.locator("svg.timeline")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    seen: set[int] = set()
    for share in (0.2, 0.5, 0.8):
        opened.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        tip = opened.locator("#tip")
        assert tip.is_visible()
        moment = int(tip.get_attribute("data-moment"))
        seen.add(moment)
        rows = dict(line.split("\t") for line in tip.inner_text().splitlines() if "\t" in line)
        assert rows["all"] == format_bytes(timeline.level_bytes[moment] + plan.step.standing_bytes)
        assert rows["without a plan"] == format_bytes(
            simulate(plan.step).level_bytes[moment] + plan.step.standing_bytes
        )
    assert len(seen) == 3
    opened.mouse.move(1, 1)
    assert not opened.locator("#tip").is_visible()


def test_the_keyboard_goes_to_the_peak(opened: Any, plan: Plan) -> None:
    opened.locator("svg.timeline").focus()
    opened.keyboard.press("p")
    tip = opened.locator("#tip")
    assert int(tip.get_attribute("data-moment")) == simulate(plan.step, plan).peak_moment
    assert format_bytes(plan.total_peak_bytes) in tip.inner_text()
    opened.keyboard.press("ArrowRight")
    assert int(tip.get_attribute("data-moment")) == simulate(plan.step, plan).peak_moment + 1
    opened.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_click_on_a_heading_sorts(opened: Any) -> None:
    def values() -> list[float]:
        cells = opened.locator("#modules tbody:not([hidden]) tr td:nth-child(3)")
        return [float(v) for v in cells.evaluate_all("cells => cells.map(c => c.dataset.value)")]

    before = values()
    assert len(before) > 3
    head = opened.locator("#modules th button", has_text="saved")
    head.click()
    assert values() == sorted(before, reverse=True) != before
    head.click()
    assert values() == sorted(before)
    head.click()
    assert values() == before


def test_light_and_dark(opened: Any) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    before = opened.evaluate(colour)
    opened.locator("#theme").click()
    assert opened.evaluate(colour) != before
    opened.locator("#theme").click()
    assert opened.evaluate(colour) == before


def test_what_a_bar_means_is_said(opened: Any) -> None:
    opened.locator("svg.network rect.fill").first.hover()
    assert "saved for backward" in opened.locator("#tip").inner_text()
