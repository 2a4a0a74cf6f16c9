"""The page as text: what is on it, that it needs nothing else, and that no name can break it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from lowtide.errors import InputError
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step
from lowtide.report.page import page
from lowtide.report.svg import byte_ticks, share_ticks, steps
from lowtide.report.tradeoff_svg import Point, Points, points_of
from lowtide.units import format_bytes
from tests.planning.test_blocks import traced
from tests.plans import drop_everything, random_plan
from tests.test_report_text import make_plan, make_step

VOID = {"meta", "link", "br", "rect", "line", "circle", "path"}


class _Tags(HTMLParser):
    """Checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def data_of(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def test_the_page_has_the_numbers_of_the_plan() -> None:
    step = traced("in place")
    plan = random_plan(step, 2)
    text = page(plan)
    data = data_of(text)
    for field in ("peak_bytes", "total_peak_bytes", "baseline_peak_bytes", "lower_bound_bytes"):
        assert data[field] == getattr(plan, field)
    timeline = data["timeline"]
    assert isinstance(timeline, dict)
    assert max(timeline["total"]) == plan.total_peak_bytes == timeline["total"][timeline["peak"]]
    assert max(timeline["baseline"]) == simulate(step).total_peak_bytes
    for k, total in enumerate(timeline["total"]):
        assert sum(layer["bytes"][k] for layer in timeline["layers"]) == total
    total_row = re.search(r'<tr><td>all</td><td data-value="(\d+)">', text)
    assert total_row
    assert int(total_row[1]) == plan.total_peak_bytes
    assert f'id="all-at-peak">{format_bytes(plan.total_peak_bytes)}<' in text


def test_tags_are_closed_and_nothing_is_loaded_from_elsewhere() -> None:
    text = page(drop_everything(traced("in place")), Points("", "a clock", (Point(100, 0.5), Point(200, 0.0))))
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    outside = re.findall(r"""(?:src|href)\s*=|url\(|@import|fetch\(|https?://[^"]*""", text)
    assert set(outside) <= {"href=", "http://www.w3.org/2000/svg"}
    assert text.count("href=") == text.count('href="data:,"') == 1


def test_a_name_cannot_break_out_of_its_place() -> None:
    step = make_step(("</script><script>alert(1)</script>", 'a"><b>', "c"))
    step = replace(step, meta={"name": "<i>x</i>", "inputs": ["a&b"]})
    text = page(drop_everything(step))
    assert "<script>alert" not in text
    assert "<i>x" not in text
    assert 'a"><b>' not in text


@pytest.mark.parametrize("step", [Step((), (), (), (), (), (), 0), make_step(("a",))], ids=["empty", "one op"])
def test_a_small_step_has_a_page(step: Step) -> None:
    plan = replace(make_plan(step), keep=frozenset(), runs={}, recompute_ops=0, recompute_flops=0)
    assert "<h1>" in page(plan)


def test_a_curve_is_read_as_it_is_printed() -> None:
    point = {"total_peak_bytes": 5, "slowdown": 0.25, "peak_bytes": 3}
    data = {"kind": "lowtide.curve", "digest": "d", "costs": "c", "points": [point]}
    assert points_of(data) == Points("d", "c", (Point(5, 0.25),))
    for wrong in ([], {"kind": "lowtide.plan"}, {"kind": "lowtide.curve"}, {**data, "points": [{}]}):
        with pytest.raises(InputError, match="curve"):
            points_of(wrong)


def test_the_chosen_plan_is_on_the_curve() -> None:
    plan = drop_everything(make_step(("a", "b", "c", "d")))
    text = page(plan, Points("", "", (Point(plan.total_peak_bytes, plan.slowdown),)))
    assert text.count('class="chosen"') == 1
    assert "this plan" in text
    assert "this plan</text>" not in page(plan)


@pytest.mark.parametrize("top", [1, 7, 900, 5 * 2**20 + 1, 1434 * 2**20, 5 * 2**30, 99 * 2**40])
def test_ticks_are_few_and_round(top: int) -> None:
    ticks = byte_ticks(top)
    assert 2 <= len(ticks) <= 9
    assert all(size <= top for size, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


@pytest.mark.parametrize("top", [0.0, 0.003, 0.34, 0.5, 2.2])
def test_shares_reach_the_top(top: float) -> None:
    ticks = share_ticks(top)
    assert ticks[-1] >= top
    assert len(ticks) <= 7


def test_steps_leave_out_what_does_not_change() -> None:
    assert steps([0, 1, 2, 3], [5, 5, 7]) == "M0 5H2V7H3"


def test_a_long_step_has_a_small_page() -> None:
    step = make_step(tuple(f"layers.{i // 10}.block.{i % 10}.a" for i in range(3000)))
    text = page(drop_everything(step))
    assert len(text) < 1_500_000
    assert text.count('class="recomputed fill"') <= 700
    data = data_of(text)["timeline"]
    assert isinstance(data, dict)
    assert data["total"][data["peak"]] == max(data["total"])
