"""Steps as chains: what the reduction says of a step is what the simulator counts when the plan is lifted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.check import check
from lowtide.planning.reduce import block_of, lift, reduce
from lowtide.planning.rehearse import moves_of
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.revolve import Revolve
from lowtide.planning.step import Step
from tests.random_chains import checkpoint_sets, random_chain
from tests.random_steps import chain_step, random_step, residual_net, steps, uniform_chain


def test_a_chain_comes_back() -> None:
    step = chain_step(a=[9, 9, 3, 17, 10], s=[17, 6, 19, 17], i=[0, 1, 0, 1], o=[1, 0, 1, 0], t=[206, 205, 201, 219])
    chain = reduce(step)
    assert chain.a == (0, 9, 3, 17, 0)  # the input stands before the step, nobody waits for the last output
    assert (chain.s, chain.i, chain.o) == ((17, 6, 19, 17), (False, True, False, True), (True, False, True, False))
    assert chain.ops == ((0, 1), (1, 2), (2, 3), (3, 4))
    # the gradient of the last output, 10 bytes, is there from the beginning of backward
    assert chain.t == (206, 205, 201, 229)
    assert chain.forward == (10, 11, 12, 13)


@pytest.mark.parametrize("seed", range(8))
def test_peaks_of_a_chain_are_those_of_the_simulator(seed: int) -> None:
    """Where backward is the high-water mark the chain is exact, with two exceptions where the step does better: a
    checkpoint that nobody saved goes before its segment ends, and a segment is recomputed at its first unpack only."""
    rng = random.Random(seed)
    exact = 0
    for _ in range(12):
        c = random_chain(rng, rng.randint(2, 7), 20)
        if rng.random() < 0.7:
            c = replace(c, s=tuple(s + 1 for s in c.s))
        step = chain_step(c.a, c.s, c.i, c.o, [t + 200 for t in c.t])
        chain = reduce(step)
        for checkpoints in checkpoint_sets(chain.n):
            simulated = simulate(step, lift(step, chain, checkpoints)).peak_bytes
            if all(c.i[q] for q in checkpoints) and min(c.s) > 0:
                exact += 1
                assert simulated == chain.peak_bytes(checkpoints)
            else:
                assert simulated <= chain.peak_bytes(checkpoints)
    assert exact > 20


@given(steps(9), st.sampled_from(["op", "module"]), st.randoms(use_true_random=False))
def test_lifted_checkpoints_are_plans(step: Step, granularity: str, rng: random.Random) -> None:
    chain = reduce(step, granularity)
    checkpoints = [c for c in range(1, chain.n) if rng.random() < 0.4]
    keep, runs = lift(step, chain, checkpoints)
    assert check(step, keep, runs) == []
    once = [o for ops in runs.values() for o in ops]
    assert len(once) == len(set(once))
    # the schedule of the same checkpoints is the same plan
    assert simulate(step, lift(step, chain, moves_of(chain, checkpoints))).peak_bytes <= max(
        simulate(step, (keep, runs)).peak_bytes, simulate(step).peak_bytes
    )


@given(steps(9), st.integers(1, 4))
def test_lifted_schedules_are_plans(step: Step, slots: int) -> None:
    chain = reduce(step)
    schedule = Revolve(slots=slots).solve(chain).schedule
    keep, runs = lift(step, chain, schedule)
    assert check(step, keep, runs) == []


def test_a_schedule_runs_stages_again_and_again() -> None:
    step = uniform_chain(24)
    chain = reduce(step)
    found = Revolve(slots=3).solve(chain)
    timeline = simulate(step, lift(step, chain, found.schedule))
    assert timeline.peak_bytes < 8 * 100  # 3 activations, the stage's own, gradients
    assert timeline.recompute_ops > chain.n
    # the simulator runs no more than the chain says; less where nobody wants the output of a stage that is recorded
    assert found.recompute_cost / 12 > timeline.recompute_ops / 24


def test_no_boundary_where_a_version_is_overwritten_later() -> None:
    step = residual_net(3)
    chain = reduce(step)
    assert chain.n < step.n_forward
    for start, _ in chain.ops[1:]:
        for v, value in enumerate(step.values):
            crosses = 0 <= value.op < start <= value.overwritten
            assert not crosses or step.is_external(v)
    assert chain.ops[0][0] == 0
    assert all(a[1] == b[0] for a, b in zip(chain.ops, chain.ops[1:], strict=False))


def test_wide_frontiers_are_counted_value_by_value() -> None:
    """Inside a residual block the frontier is two values, and the chain counts the shared one for each checkpoint."""
    step = residual_net(3)
    chain = reduce(step)
    ends = [k for k in range(2, chain.n) if chain.a[k] == 100]  # one value: after a block
    assert len(ends) == 3
    assert chain.peak_bytes(()) == simulate(step).peak_bytes
    for (
        c
    ) in ends:  # what the last op saved is let go of before the step recomputes the rest, which the chain cannot say
        assert 0 <= chain.peak_bytes([c]) - simulate(step, lift(step, chain, [c])).peak_bytes <= 100
    rng = random.Random(0)
    for _ in range(200):
        some = [c for c in range(1, chain.n) if rng.random() < 0.3]
        assert simulate(step, lift(step, chain, some)).peak_bytes <= chain.peak_bytes(some)


def test_grouping_by_hand() -> None:
    step = chain_step(a=[5] * 7, s=[1] * 6, i=[1] * 6, o=[0] * 6, t=[9] * 6)  # modules m0..m5
    assert reduce(step, "module").n == 6
    pairs = reduce(step, lambda path: int(path[1:]) // 2)
    assert pairs.ops == ((0, 2), (2, 4), (4, 6))
    assert pairs.s == (2 + 5, 2 + 5, 2 + 5)  # what is inside is saved by the stage
    assert pairs.names[0] == "m0 .. m1"
    assert reduce(step, lambda path: None).n == 1
    assert reduce(step, lambda path: None if path in ("m1", "m3", "m5") else path).ops == pairs.ops


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("layer1.0.conv1", "layer1.0"),
        ("layer1.0.downsample.0", "layer1.0"),
        ("layer1.0", "layer1.0"),
        ("features.3", "features.3"),
        ("features.1.0.block.2", "features.1.0"),
        ("transformer.h.11.attn.c_attn", "transformer.h.11"),
        ("features.denseblock1.denselayer1.conv1", "features.denseblock1.denselayer1"),
        ("conv1", "conv1"),
        ("", None),
    ],
)
def test_blocks(path: str, block: str | None) -> None:
    assert block_of(path) == block


def test_what_cannot_be_reduced_or_lifted_is_refused() -> None:
    step = random_step(1)
    with pytest.raises(InputError, match="no granularity 'layer': choose from op, module, block"):
        reduce(step, "layer")
    with pytest.raises(InputError, match="not reduced from this step"):
        lift(step, Chain.from_arrays(a=[1, 2]), [])
    with pytest.raises(InputError, match="not reduced from this step"):
        lift(step, reduce(uniform_chain(3)), [])
    chain = reduce(step)
    with pytest.raises(InputError, match="is not a checkpoint"):
        lift(step, chain, [chain.n])
    with pytest.raises(InputError, match="no forward op"):
        reduce(Step((), (), (), (), (), (), 0))
