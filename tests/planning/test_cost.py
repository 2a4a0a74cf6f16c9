from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lowtide.errors import InputError
from lowtide.planning.cost import (
    DEVICES,
    REACHED_BANDWIDTH,
    REACHED_FLOPS,
    Device,
    device_named,
    roofline,
    traffic_of,
)
from lowtide.planning.judge import judge
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.frontier import frontier
from lowtide.planning.step import Op, Phase, Step
from tests.random_steps import random_step, residual_net

TOY = Device("toy", {"float32": 100.0, "tf32": 1000.0, "float16": 400.0}, 10.0, 0.5, 0, "made up")


def op(name: str = "aten.mm.default", flops: int = 0, dtype: str = "float32", traffic: int = 0) -> Op:
    return Op(name, Phase.FORWARD, "", (), (), (), 0, flops, 0, "", False, dtype, traffic)


def test_an_op_takes_the_larger_of_compute_and_traffic_and_a_launch() -> None:
    assert TOY.seconds(op(flops=6000), 8) == 6000 / (100 * REACHED_FLOPS) + 0.5
    assert TOY.seconds(op(flops=6), 800) == 800 / (10 * REACHED_BANDWIDTH) + 0.5
    assert TOY.seconds(op(), 0) == 0.5


def test_rates_go_by_type_and_convolutions_use_tf32() -> None:
    assert TOY.rate(op(dtype="float16")) == 400
    assert TOY.rate(op(dtype="float64")) == 100  # no rate of its own
    assert TOY.rate(op(dtype="")) == 100
    assert TOY.rate(op("aten.convolution.default")) == 1000
    assert TOY.rate(op("aten.convolution_backward.default", dtype="float16")) == 400


def test_devices_are_known_by_their_vendors_names() -> None:
    names = {
        "NVIDIA A100-SXM4-40GB": "a100-40gb",
        "NVIDIA A100-SXM4-80GB": "a100",
        "NVIDIA GeForce RTX 4090": "rtx4090",
        "NVIDIA L4": "l4",
        "Tesla T4": "t4",
        "H200": "h200",
    }
    assert {name: device_named(name).name for name in names} == names
    with pytest.raises(InputError, match="unknown device 'a10000': did you mean 'a100'"):
        device_named("a10000")


def test_every_device_has_a_source_and_plausible_figures() -> None:
    for name, device in DEVICES.items():
        assert device.name == name
        assert device.source
        assert device.flops["float32"] > device.bandwidth / 100 > 0
        assert 1e-7 < device.launch_s < 1e-4


def test_a_roofline_fills_seconds_and_nothing_else() -> None:
    step = residual_net(2)
    done = roofline(step, "a100")
    assert len(done.seconds) == len(step.ops)
    assert min(done.seconds) > 0
    assert done.total_seconds == sum(done.seconds)
    assert done.digest == step.digest
    assert replace(done, seconds=(), meta=step.meta) == step
    assert done.meta["costs"] == "roofline of a100"


def test_traffic_is_what_was_traced_or_the_storages() -> None:
    step = residual_net(1)
    first = step.ops[0]
    assert traffic_of(step, first) == sum(step.nbytes(v) for v in (*first.reads, *first.writes))
    assert traffic_of(step, replace(first, traffic_bytes=7)) == 7


def test_costs_survive_json_and_plans_add_them_up() -> None:
    for seed in range(20):
        step = random_step(seed, 9)
        n = len(step.ops)
        step = replace(step, seconds=tuple(float(k + 1) for k in range(n)), workspace_bytes=tuple(range(n)))
        assert Step.from_json(json.loads(json.dumps(step.to_json()))).seconds == step.seconds
        assert Step.from_json(json.loads(json.dumps(step.to_json()))).workspace_bytes == step.workspace_bytes
        keep, runs = frontier(step)
        expected = sum(float(o + 1) for ops in runs.values() for o in ops)
        assert simulate(step, (keep, runs)).added_s == expected
        plan = judge(step, keep, runs, "x", "")
        assert plan.added_s == expected
        assert plan.slowdown == expected / step.total_seconds


def test_without_seconds_slowdown_is_of_flops() -> None:
    step = residual_net(3)
    plan = judge(step, *frontier(step), "x", "")
    assert plan.added_s == 0
    assert plan.slowdown == plan.recompute_flops / step.total_flops > 0


def test_workspace_counts_where_its_op_runs() -> None:
    step = residual_net(2)
    peak = simulate(step)
    at = step.moments[peak.peak_moment]
    assert at >= 0
    workspace = [0] * len(step.ops)
    workspace[at] = 1000
    assert simulate(replace(step, workspace_bytes=tuple(workspace))).peak_bytes == peak.peak_bytes + 1000


def test_workspace_counts_where_its_op_runs_again() -> None:
    step = residual_net(6)
    lists = frontier(step)
    m, ops = next(iter(lists[1].items()))
    workspace = [0] * len(step.ops)
    workspace[ops[0]] = 10**6
    level = simulate(replace(step, workspace_bytes=tuple(workspace)), lists).level_bytes
    assert level[m] > 10**6
    assert level[step.ops[ops[0]].moment] > 10**6
    assert sum(x > 10**6 for x in level) == 2
