from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Category, Op, Phase, Save, Step, Storage, Value
from lowtide.report.columns import columns, shorten
from lowtide.report.curve import curve
from lowtide.report.modules import module_table
from lowtide.report.text import describe_plan, describe_step, describe_timeline, describe_verdict

MIB = 1024**2


def make_step(modules: tuple[str, ...] = ("conv", "norm", "act"), nbytes: int = 8 * MIB) -> Step:
    """A chain: each forward op reads the last output and writes the next; autograd saves every op's input."""
    n = len(modules)
    storages = [Storage(3 * MIB, Category.PARAMETER, -1, 3 * n, True), Storage(nbytes, Category.INPUT, -1, 3 * n, True)]
    values = [Value(0, 0, -1, -1), Value(1, 0, -1, -1)]
    ops, saves, moments, positions = [], [], [], []
    for k, module in enumerate(modules):
        storages.append(Storage(nbytes, Category.ACTIVATION, k, k + 2, False))
        values.append(Value(2 + k, 0, k, -1))
        flops = 2_000_000_000 if k == 0 else 0
        ops.append(Op("aten.f.default", Phase.FORWARD, module, (1 + k, 0), (2 + k,), (), 0, flops, k, "", False))
        moments.append(k)
        positions.append(k)
    for k in reversed(range(n)):
        use = len(moments)
        saves.append(Save(1 + k, k, (use,), use + 2))
        moments.append(~(len(saves) - 1))
        storages.append(Storage(nbytes, Category.TRANSIENT, use + 1, use + 4, False))
        values.append(Value(len(storages) - 1, 0, len(ops), -1))
        ops.append(
            Op("aten.b.default", Phase.BACKWARD, modules[k], (1 + k,), (len(values) - 1,), (), 0, 0, use + 1, "", False)
        )
        moments.append(len(ops) - 1)
        positions += [k, k]
    meta = {"name": "toy:chain", "model": "Chain", "inputs": ["4x8:float32"], "optimizer": "", "torch": "2.14.1"}
    return Step(tuple(ops), tuple(values), tuple(storages), tuple(saves), tuple(moments), tuple(positions), n, meta)


def make_plan(step: Step) -> Plan:
    """What the first op wrote is kept, the rest made again from there. The figures are made up."""
    n = step.n_forward
    return Plan(
        step=step,
        keep=frozenset({2} if n else ()),
        runs={n: tuple(range(1, n - 1))} if n else {},
        solver="frontier",
        status="optimal with at most one recomputation of any op",
        peak_bytes=20 * MIB,
        baseline_peak_bytes=50 * MIB,
        total_peak_bytes=31 * MIB,
        lower_bound_bytes=16 * MIB,
        bound_op="backward of norm (aten.b.default)",
        recompute_flops=1_000_000_000,
        recompute_ops=2,
    )


def test_a_step_reads_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("step", describe_step(make_step()))


def test_a_plan_reads_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("plan", describe_plan(make_plan(make_step())))


def test_a_timeline_reads_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    step = make_step(tuple("abcdefgh"))
    golden("timeline", describe_timeline(simulate(step)))


def test_the_curve_is_as_high_as_its_level() -> None:
    step = make_step()
    lines = curve(step, [0, 8, 4, 2, 1, 0, 0, 0, 0], height=2)
    assert [line.split("|")[1] for line in lines] == [" █", " ██▄▂", "fo backw"]


def test_a_plan_without_saved_activations_says_so() -> None:
    step = make_step()
    step = replace(step, saves=tuple(replace(s, value=0) for s in step.saves))  # backward wants parameters alone
    plan = replace(make_plan(step), keep=frozenset(), runs={}, recompute_ops=0, recompute_flops=0)
    text = describe_plan(plan)
    assert "there is nothing to plan" in text
    assert "nothing is recomputed" in text


def test_a_repr_is_the_report() -> None:
    plan = make_plan(make_step())
    assert repr(plan) == describe_plan(plan)
    assert repr(plan.step) == describe_step(plan.step)


def test_a_plan_of_a_deep_network_fits_a_screen() -> None:
    modules = tuple(
        f"a.very.long.path.of.a.module.in.a.deep.network.layers.{i}.block.{j}.conv" for i in range(40) for j in range(3)
    )
    step = make_step(modules)
    lines = describe_plan(make_plan(step)).splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_an_empty_step_has_a_text() -> None:
    empty = Step((), (), (), (), (), (), 0)
    assert "a step" in describe_step(empty)
    plan = replace(make_plan(empty), peak_bytes=0, baseline_peak_bytes=0, total_peak_bytes=0, lower_bound_bytes=0)
    assert describe_plan(plan)


def test_modules_are_grouped_as_deep_as_the_rows_allow() -> None:
    step = make_step(("a.0", "a.1", "b.0", "b.1"))  # the last op's output is not saved
    assert [r.module for r in module_table(step, {2}, rows=4)] == ["a.0", "a.1", "b.0"]
    assert [r.module for r in module_table(step, {2}, rows=2)] == ["a", "b"]


def test_too_many_modules_are_added_up() -> None:
    step = make_step(tuple("abcdef"))
    table = module_table(step, {3}, rows=3)
    assert [r.module for r in table] == ["a", "b", "(3 others)"]
    assert sum(r.saved_bytes for r in table) == 5 * 8 * MIB
    assert sum(r.kept_bytes for r in table) == 8 * MIB
    assert sum(r.dropped_bytes for r in table) == 4 * 8 * MIB


@dataclass(frozen=True)
class _Difference:
    sentence: str


@dataclass(frozen=True)
class _Verdict:
    ok: bool = True
    differences: tuple[_Difference, ...] = ()
    compared: int = 1325
    tolerance: str = ""
    steps: int = 1
    device: str = "cpu"
    peak_bytes: int = 40 * MIB
    baseline_peak_bytes: int = 100 * MIB
    predicted_peak_bytes: int = 39 * MIB
    predicted_baseline_peak_bytes: int = 101 * MIB
    seconds: float = 1.3
    baseline_seconds: float = 1.0


def test_a_verdict_reads_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("verdict", describe_verdict(_Verdict()))


def test_differences_are_named_up_to_a_limit(golden: Callable[[str, str], None]) -> None:
    differences = tuple(_Difference(f"gradient of layer{i}.weight differs by 0.5") for i in range(12))
    golden("verdict_differs", describe_verdict(_Verdict(ok=False, differences=differences)))


def test_a_verdict_without_memory_or_time_has_a_text() -> None:
    assert describe_verdict(_Verdict(peak_bytes=0, baseline_peak_bytes=0, seconds=0.0, baseline_seconds=0.0))


def test_columns_align_and_do_not_trail() -> None:
    assert columns([["a", "1"], ["long", "10", "x"], ["b", ""]]) == ["a      1", "long  10  x", "b"]
    assert columns([]) == []


def test_long_text_is_cut_in_the_middle() -> None:
    assert shorten("abcdefghij", 7) == "ab...ij"
    assert shorten("abc", 3) == "abc"
