from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.account import Accountant, Row
from lowtide.planning.bound import bound
from lowtide.planning.check import check
from lowtide.planning.compress import CHUNK_BYTES, code_bytes, compressed, gain_bytes, uncompressed
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.judge import judge
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.solve import solve
from lowtide.planning.step import Step
from tests.random_steps import Builder, Call, random_plan, random_step


def with_codecs(step: Step, seed: int) -> Step:
    """Some saves are content with less: all saves of a value with the same, or some with the shape."""
    rng = random.Random(seed)
    of_value = [rng.choice(["", "bits", "two/4", "shape"]) for _ in step.values]
    saves = tuple(
        replace(s, codec="shape" if rng.random() < 0.2 else "" if rng.random() < 0.1 else of_value[s.value])
        for s in step.saves
    )
    return replace(step, saves=saves)


def coded_steps(max_ops: int = 8) -> st.SearchStrategy[Step]:
    return st.builds(
        lambda seed, n: with_codecs(random_step(seed, n), seed), st.integers(0, 10**6), st.integers(2, max_ops)
    )


def small(step: Step) -> Step:
    return compressed(step, least_bytes=1)


@pytest.mark.parametrize(
    ("codec", "nbytes", "want"),
    [
        ("bits", 0, 0), ("bits", 1, 1), ("bits", 8, 1), ("bits", 9, 2), ("nonpositive/4", 36, 2), ("positive/2", 16, 1),
        ("two/4", 36, 10), ("two/8", 64, 9), ("index/1", 80, 10), ("index/2", 80, 20), ("index/4", 80, 40),
        ("shape", 80, 0),
    ],
)  # fmt: skip
def test_sizes(codec: str, nbytes: int, want: int) -> None:
    assert code_bytes(codec, nbytes) == want


@given(coded_steps())
@settings(max_examples=200, deadline=None)
def test_it_can_be_undone_and_written_down(step: Step) -> None:
    derived = small(step)
    assert uncompressed(derived) == step
    assert uncompressed(derived).digest == step.digest
    assert (derived.digest == step.digest) == (not derived.codes)
    assert Step.from_json(json.loads(json.dumps(derived.to_json()))) == derived
    assert small(derived) is derived


@given(coded_steps(), st.integers(0, 1000))
@settings(max_examples=400, deadline=None)
def test_plans_of_it_are_plans_like_any_other(step: Step, seed: int) -> None:
    derived = small(step)
    lists = random_plan(derived, random.Random(seed))
    assert check(derived, *lists) == []
    peak = simulate(derived, lists).peak_bytes
    assert peak >= bound(derived).bytes
    plan = judge(derived, *lists, solver="random", status="for tests")
    assert plan.baseline_peak_bytes == simulate(step).peak_bytes
    # Searches count codes that a run makes and nobody wants; the simulator does not.
    counted = Accountant(Frontiers(derived)).account(Row.of(len(derived.values), lists)).peak
    assert peak <= counted <= peak + sum(map(derived.nbytes, derived.code_values))


@given(coded_steps(6), st.sampled_from(["deep", "frontier", "budget"]))
@settings(max_examples=60, deadline=None)
def test_solvers_take_it(step: Step, solver: str) -> None:
    derived = small(step)
    plan = solve(derived, solver).plan
    assert plan is not None
    assert plan.peak_bytes <= simulate(derived).peak_bytes


def two_ops(codec: str, nbytes: int = 800) -> Step:
    """Op 0 makes a value of 800 bytes and saves it; op 1 takes it in."""
    b = Builder()
    x, y, z = b.standing(8), b.fresh(nbytes), b.fresh(40)
    b.call(Call([x], [y], saves=[y]))
    b.call(Call([y], [z], saves=[]))
    step = b.step()
    return replace(step, saves=tuple(replace(s, codec=codec) for s in step.saves))


def test_a_code_by_hand() -> None:
    step = two_ops("nonpositive/4")
    derived = small(step)
    (code,) = derived.codes
    save = step.saves[0]
    before, after = simulate(step).level_bytes, simulate(derived).level_bytes
    made, used = step.ops[0].moment, save.uses[0]
    # 25 bytes of code, and as much scratch; then the code alone; then all of it in backward.
    assert after[made] == before[made] + 25 + 25
    assert {a - b for a, b in zip(after[made + 2 : used], before[made + 2 : used], strict=True)} == {25 - 800}
    assert after[used + 1] == before[used + 1] + 25
    assert gain_bytes(derived) == 775
    assert derived.ops[0].writes == (*step.ops[0].writes, code.value)


def test_a_shape_by_hand() -> None:
    step = two_ops("shape")
    derived = small(step)
    made, used = step.ops[0].moment, step.saves[0].uses[0]
    before, after = simulate(step).level_bytes, simulate(derived).level_bytes
    assert after[made] == before[made]
    assert {a - b for a, b in zip(after[made + 2 : used + 2], before[made + 2 : used + 2], strict=True)} == {-800}
    assert keep_all(derived) == frozenset()
    on_gpu = small(replace(step, meta={"device": "cuda:0"}))
    assert simulate(on_gpu).level_bytes[used + 1] == before[used + 1]  # there a shape has memory
    assert simulate(on_gpu).level_bytes[used - 1] == after[used - 1]


def test_scratch_has_a_limit() -> None:
    step = two_ops("nonpositive/4", nbytes=640 * CHUNK_BYTES)
    derived = small(step)
    code = step.nbytes(step.saves[0].value) // 32
    assert derived.base_bytes[step.ops[0].moment] - step.base_bytes[step.ops[0].moment] == CHUNK_BYTES < code


def test_what_is_left_alone() -> None:
    step = two_ops("bits")
    value = step.saves[0].value
    assert small(step).codes
    assert not compressed(step, least_bytes=801).codes
    assert not small(two_ops("")).codes
    pinned = replace(step, ops=(replace(step.ops[0], pinned="it is odd"), *step.ops[1:]))
    assert not small(pinned).codes
    over = tuple(replace(v, overwritten=1) if i == value else v for i, v in enumerate(step.values))
    assert not small(replace(step, values=over)).codes
    lives = tuple(
        replace(s, death=step.n_moments) if i == step.values[value].storage else s for i, s in enumerate(step.storages)
    )
    assert not small(replace(step, storages=lives)).codes


def test_saves_that_differ_get_all_of_it_but_for_shapes() -> None:
    step = two_ops("bits")
    first = step.saves[0]
    more = replace(step, saves=(first, replace(first, uses=(), codec="")))
    assert not small(more).codes
    more = replace(step, saves=(replace(first, codec=""), replace(first, uses=(), codec="shape")))
    assert [(c.codec, c.saves) for c in small(more).codes] == [("shape", (1,))]
    more = replace(step, saves=(first, replace(first, uses=(), codec="shape")))
    assert sorted((c.codec, c.saves) for c in small(more).codes) == [("bits", (0,)), ("shape", (1,))]
