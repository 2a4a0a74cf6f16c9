"""The snapshot against PyTorch's own reader, and against what an independent replay of its events finds."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from torch.cuda import _memory_viz

from lowtide.cli import main
from lowtide.planning.plan import Plan
from lowtide.report.snapshot import snapshot
from tests.planning.test_blocks import traced
from tests.plans import drop_everything, random_plan


def replay(data: dict[str, Any]) -> tuple[int, int]:
    """Peak and final bytes of the events, with checks that an allocator would make: no two blocks overlap, and only
    what is there is freed. What no event allocates was there from the start."""
    events = data["device_traces"][0]
    there: dict[int, int] = {}
    born: set[int] = set()
    for e in events:  # as the viewer finds what was there before
        if e["action"] == "alloc":
            born.add(e["addr"])
        elif e["action"] == "free_completed" and e["addr"] in born:
            born.remove(e["addr"])
        elif e["action"] == "free_completed":
            there[e["addr"]] = e["size"]
    for block in data["segments"][0]["blocks"]:
        if block["state"] == "active_allocated" and block["address"] not in born:
            there[block["address"]] = block["size"]
    peak = sum(there.values())
    for e in events:
        if e["action"] == "alloc":
            assert all(e["addr"] + e["size"] <= a or a + n <= e["addr"] for a, n in there.items())
            there[e["addr"]] = e["size"]
            peak = max(peak, sum(there.values()))
        elif e["action"] == "free_completed":
            assert there.pop(e["addr"]) == e["size"]
    return peak, sum(there.values())


@pytest.fixture(scope="module")
def plan() -> Plan:
    return drop_everything(traced("in place"))


@pytest.mark.parametrize("seed", range(4))
def test_the_replayed_events_peak_at_the_prediction(plan: Plan, seed: int) -> None:
    other = random_plan(plan.step, seed) if seed else plan
    data = snapshot(other)
    peak, left = replay(data)
    assert peak == other.total_peak_bytes
    assert left == data["segments"][0]["allocated_size"]
    assert replay(snapshot(other, baseline=True))[0] == other.baseline_peak_bytes + other.step.standing_bytes


def test_the_segment_is_filled_without_gaps_or_overlaps(plan: Plan) -> None:
    segment = snapshot(plan)["segments"][0]
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at
        at += block["size"]
    assert at == segment["address"] + segment["total_size"]


def test_the_space_is_used_again(plan: Plan) -> None:
    assert snapshot(plan)["segments"][0]["total_size"] < 1.5 * plan.total_peak_bytes


def test_pytorch_reads_it(tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    saved, target = tmp_path / "plan.json", tmp_path / "s.pickle"
    plan.save(saved)
    assert main(["snapshot", str(saved), "-o", str(target)]) == 0
    assert "trace_plot" in capsys.readouterr().err
    data = pickle.loads(target.read_bytes())
    assert "segments: 1\n" in _memory_viz.segsum(data)
    text = _memory_viz.trace(data)
    allocs = sum(e["action"] == "alloc" for e in data["device_traces"][0])
    assert text.count(" = ") == allocs > 50
    assert "<script" in _memory_viz.trace_plot(data)
    flames = _memory_viz.memory(data, format_flamegraph=lambda lines: lines)
    assert "parameters" in flames
    assert sum(int(line.rsplit(" ", 1)[1]) for line in flames.splitlines()) == data["segments"][0]["total_size"]


def test_a_stack_is_the_op_within_its_modules(plan: Plan) -> None:
    stacks = [e["frames"] for e in snapshot(plan)["device_traces"][0] if e["action"] == "alloc"]
    convolution = next(s for s in stacks if s[0]["name"] == "aten.convolution.default")
    assert [f["filename"] for f in convolution[1:]] == ["0", "Sequential"]
    assert any(s[0]["filename"] == "recomputed" for s in stacks)


def test_a_snapshot_that_cannot_be_written_leaves_none(tmp_path: Path, plan: Plan) -> None:
    saved = tmp_path / "plan.json"
    plan.save(saved)
    assert main(["snapshot", str(saved), "-o", str(tmp_path / "no" / "s.pickle")]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
