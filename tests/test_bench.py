"""`lowtide bench thesis`: its networks are the ones they say they are, its peaks are of the plans they name, and all of
its experiments run (on small sizes here) and write what they promise."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.bench.models import RECIPES, Network
from lowtide.bench.models.coca import Coca
from lowtide.bench.models.cyclegan import Generator
from lowtide.bench.models.gnmt import Gnmt
from lowtide.bench.models.sequential import dropout_off, sequential
from lowtide.bench.peaks import counted, measured, peak_of, traced
from lowtide.bench.published import TABLE, Published
from lowtide.bench.result import Result, Table
from lowtide.bench.segments import checkpointed, cuts_of, leading_inplace_off, stage_of
from lowtide.bench.tensor_table import as_they_run_it
from lowtide.bench.thesis import EXPERIMENTS, across_models, feng_huang, granularity, prediction, square_root
from lowtide.cli import main
from lowtide.cli.commands import bench
from lowtide.errors import InputError, PlanError
from lowtide.planning.graph import Graph
from lowtide.planning.reduce import reduce
from lowtide.planning.solve import solve

# -- networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"), [("alexnet", 64), ("vgg11", 32), ("resnet18", 32), ("densenet121", 32), ("inception_v3", 96)]
)
def test_a_sequence_of_stages_computes_what_torchvision_computes(name: str, size: int) -> None:
    import torchvision

    options: dict[str, Any] = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(0)
        model = dropout_off(getattr(torchvision.models, name)(weights=None, **options).train())
        torch.manual_seed(0)
        stages = sequential(name)
    x = torch.randn(2, 3, size, size)
    for m in (model, stages):
        m(x).sum().backward()
    assert [p.shape for p in model.parameters()] == [p.shape for p in stages.parameters()]
    for p, q in zip(model.parameters(), stages.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)  # type: ignore[arg-type]


SMALL: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "cyclegan": (Generator(width=4, blocks=2), (torch.randn(2, 3, 16, 16),)),
    "gnmt": (
        Gnmt(vocabulary=50, width=8, layers=3),
        (torch.randint(0, 50, (3, 7)), torch.randint(0, 50, (3, 6))),
    ),
    "coca": (
        Coca(width=16, heads=2, layers=2, patch=8, image=16),
        (torch.randn(3, 3, 16, 16), torch.randint(0, 50, (3, 33))),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_own_networks_train_the_same_under_a_plan(name: str) -> None:
    model, args = SMALL[name]
    plan = lowtide.plan(model.train(), args, solver="frontier")
    assert plan.peak_bytes < plan.baseline_peak_bytes
    verdict = lowtide.verify(model, args, plan=plan)
    assert verdict.ok, verdict


def test_shapes_of_own_networks() -> None:
    generator, (image,) = SMALL["cyclegan"]
    assert generator(image).shape == image.shape
    for name in ("gnmt", "coca"):
        model, args = SMALL[name]
        assert model(*args).shape == ()


def test_a_recipe_makes_the_batch_and_size_asked_for_and_leaves_the_random_stream_alone() -> None:
    state = torch.get_rng_state()
    network = RECIPES["resnet18"].make(3, 48, "cpu")
    assert network.args[0].shape == (3, 3, 48, 48)
    assert network.model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert RECIPES["resnet18"].make(2).args[0].device.type == "meta"
    assert RECIPES["gnmt"].make(2).device == "fake"


# -- peaks ----------------------------------------------------------------------------------------------------------


def test_counted_peaks_are_the_predicted_ones_and_leave_no_gradients() -> None:
    network = RECIPES["resnet18"].make(4, 64)
    step = traced(network)
    plan = solve(step, "frontier").plan
    assert plan is not None
    for _ in range(2):  # a second run would not allocate gradients that the first had left
        assert counted(network) == plan.baseline_peak_bytes
        assert counted(network, plan) == plan.peak_bytes
    assert all(p.grad is None for p in network.model.parameters())
    assert plan.peak_bytes < plan.baseline_peak_bytes


def test_measured_peaks_are_near_the_counted_ones() -> None:
    network = RECIPES["alexnet"].make(8, 64, "cpu")
    assert measured(network) == pytest.approx(counted(network), rel=0.1)
    assert all(p.grad is None for p in network.model.parameters())


def test_a_network_that_meta_runs_otherwise_is_not_run() -> None:
    model, args = SMALL["gnmt"]
    network = Network("gnmt", model, args, "fake")
    step = traced(network)
    assert peak_of(network, step) == lowtide.simulate(step).peak_bytes


def test_a_peak_of_another_step_than_the_plans_is_refused() -> None:
    plan = solve(traced(RECIPES["vgg11"].make(2, 32)), "frontier").plan
    with pytest.raises(PlanError, match="leaves its plan"):
        counted(RECIPES["resnet18"].make(2, 32), plan)


@pytest.mark.parametrize("name", ["vgg16", "vgg19"])
def test_linear_is_not_above_greedy_where_the_formula_ties(name: str) -> None:
    """The largest segment of these is as large however the chain is cut, and hides the rest from the formula."""
    step = traced(RECIPES[name].make(64, 224))
    linear, greedy = solve(step, "linear"), solve(step, "greedy")
    assert linear.stats["chain_peak_bytes"] == greedy.stats["chain_peak_bytes"]
    assert linear.peak_bytes < greedy.peak_bytes


# -- segments -------------------------------------------------------------------------------------------------------


def stages_of(width: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def gradients(stages: nn.Sequential, forward: Any) -> list[torch.Tensor]:
    stages.zero_grad()
    forward(torch.linspace(-1, 1, 12).view(2, 6).requires_grad_()).square().sum().backward()
    return [p.grad for p in stages.parameters() if p.grad is not None]


def test_checkpointed_segments_give_the_same_gradients_and_run_again_what_they_should() -> None:
    stages = stages_of()
    plain = gradients(stages, stages)
    runs = [0] * len(stages)
    for k, m in enumerate(stages):
        m.register_forward_pre_hook(lambda *_, k=k: runs.__setitem__(k, runs[k] + 1))
    with leading_inplace_off(stages, [3, 6]):
        assert not stages[3].inplace
        under = gradients(stages, checkpointed(stages, [3, 6]))
    assert stages[3].inplace
    assert all(torch.equal(a, b) for a, b in zip(plain, under, strict=True))
    assert runs == [2, 2, 2, 2, 2, 2, 1, 1]


def test_checkpoints_on_the_chain_are_the_stages_that_begin_a_segment() -> None:
    stages = stages_of()
    step = lowtide.trace(stages, (torch.ones(2, 6, requires_grad=True),))
    chain = reduce(step, stage_of)
    assert chain.n == 4  # no cut before an activation that works in place
    assert cuts_of(step, chain, [1, 3]) == [2, 6]


# -- Feng and Huang's table -----------------------------------------------------------------------------------------


def check_row(row: Published) -> None:
    """Their algorithm is theirs: run in their way its plan has the peak that theirs had. And ours is nowhere above."""
    network = feng_huang.network_of(row)
    step = traced(network)
    theirs, ours = solve(step, "feng_huang").peak_bytes / 2**20, solve(step, "frontier").peak_bytes / 2**20
    assert ours <= theirs + 0.5
    if row.own_plan_mb is not None:
        assert ours <= row.own_plan_mb + 0.5
        assert theirs <= row.own_plan_mb + 0.5
        their_way = feng_huang.their_way(network, step)
        assert (their_way is None) == (row.name == "inception_v3")
        assert (their_way or theirs * 2**20) / 2**20 == pytest.approx(row.own_plan_mb, abs=0.51)


@pytest.mark.parametrize("row", [r for r in TABLE if r.name in ("alexnet", "vgg16", "resnet50")], ids=lambda r: r.name)
def test_frontier_is_not_above_feng_and_huang(row: Published) -> None:
    check_row(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE, ids=lambda r: r.name)
def test_frontier_is_nowhere_above_feng_and_huang(row: Published) -> None:
    check_row(row)


def test_the_graph_of_a_resnet_is_the_one_that_their_program_draws() -> None:
    """Three vertices, six per block, one more where the shortcut has a convolution; pooling, the linear layer."""
    step = traced(feng_huang.network_of(replace(TABLE[7], batch=2, size=64)))
    graph = Graph.from_step(step)
    assert graph.n == 1 + 3 + 16 * 6 + 4 + 2 + 1
    alone = [
        v for v in range(graph.n) if [step.ops[o].name for o in graph.ops[v]] == ["aten.native_batch_norm.default"]
    ]
    assert alone == []


def test_their_way_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    for name in ("resnet18", "resnet50"):
        stages = sequential(name)
        x = torch.randn(2, 3, 32, 32, requires_grad=True)
        step = lowtide.trace(stages, (x,))
        graph = Graph.from_step(step)
        ends = [v for v in range(graph.n) if any("add" in step.ops[o].name for o in graph.ops[v])]
        for largest in (0, 2**40):  # blocks in two segments, and in one
            found: list[list[torch.Tensor]] = []
            for run in (stages, as_they_run_it(stages, step, graph, ends[:3], largest)):
                assert run is not None
                found.append(list(torch.autograd.grad(run(x).sum(), [x, *stages.parameters()])))
            assert all(torch.equal(p, q) for p, q in zip(*found, strict=True))
        assert as_they_run_it(stages, step, graph, [ends[0] - 1], 0) is None


def test_both_executors_reach_one_peak_on_a_chain() -> None:
    row = replace(TABLE[1], batch=2, size=64)
    network = feng_huang.network_of(row)
    step = traced(network)
    ours, by_torch = feng_huang.on_chain(network, step, reduce(step, stage_of), "linear")
    assert ours == pytest.approx(by_torch, rel=0.02)


# -- granularity ----------------------------------------------------------------------------------------------------


def test_layers_of_alexnet() -> None:
    stages = sequential("alexnet")
    for apart, layers in ((False, 8), (True, 13)):  # flatten and dropout stand alone after the last pooling
        key = granularity.layers_of(stages, apart)
        assert len({key(str(k)) for k in range(len(stages))}) == layers
        assert key("0") == key("1")  # convolution and activation
        assert (key("1") == key("2")) is not apart  # and pooling
        assert key("") is None  # the loss


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every experiment on little networks."""
    monkeypatch.setattr(prediction, "QUICK", {"alexnet": (2, 64), "resnet18": (2, 32)})
    monkeypatch.setattr(square_root, "SIZES", {"alexnet": (2, 64), "resnet18": (2, 32)})
    monkeypatch.setattr(square_root, "QUICK", ("alexnet", "resnet18"))
    monkeypatch.setattr(square_root, "UNIT_STAGES", (4, 16))
    monkeypatch.setattr(feng_huang, "TABLE", (replace(TABLE[0], batch=2, size=64),))
    monkeypatch.setattr(across_models, "QUICK", ("alexnet",))
    monkeypatch.setattr(across_models, "QUICK_REAL", {"alexnet": (2, 64)})
    monkeypatch.setattr(across_models, "BY_BATCH", {"alexnet": (2, 4, 8, 16)})
    monkeypatch.setattr(across_models, "BY_SIZE", {"alexnet": (64, 96, 128)})
    monkeypatch.setattr(granularity, "FAKE_SIZES", {"alexnet": (2, 64)})
    monkeypatch.setattr(granularity, "QUICK_SIZES", {"alexnet": (2, 64)})


@pytest.mark.parametrize("number", bench.NUMBERS)
def test_every_experiment_writes_json_table_and_figure(
    number: str, small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "thesis", "--quick", "--only", number, "-o", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    files = {p.suffix: p for p in (tmp_path / "out").iterdir()}
    assert set(files) == {".json", ".md", ".png"}
    assert files[".md"].read_text() in out
    assert files[".png"].read_bytes().startswith(b"\x89PNG")
    data = json.loads(files[".json"].read_text())
    assert data["number"] == number
    assert data["quick"]
    assert {"cpu", "versions", "date"} <= set(data["where"])
    for table in data["tables"]:
        assert table["rows"]
        for row in table["rows"]:
            assert set(row) <= {*table["columns"], "bytes", "peak_bytes", "predicted_bytes"}
    assert str(files[".json"]) in err
    again = Result.from_json(data)
    assert again.markdown() == files[".md"].read_text()
    EXPERIMENTS[number].draw(again)


def test_the_command_knows_the_experiments() -> None:
    assert tuple(EXPERIMENTS) == bench.NUMBERS


def test_only_names_experiments() -> None:
    assert bench.chosen("5.6, 5.2") == ["5.2", "5.6"]
    assert bench.chosen(None) == list(bench.NUMBERS)
    for bad in ("5.1", "", "5.2,six"):
        with pytest.raises(InputError, match=r"choose from 5\.2"):
            bench.chosen(bad)


def test_a_missing_package_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "_PACKAGES", {"no_such_package": "report"})
    assert main(["bench", "thesis", "-o", str(tmp_path / "out")]) == 2
    assert "lowtide[report]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_result_is_not_read_from_something_else() -> None:
    for bad in ([], {}, {"kind": "lowtide.experiment", "format": 0}):
        with pytest.raises(InputError, match="run it again"):
            Result.from_json(bad)


def test_a_table_as_markdown() -> None:
    rows = ({"net": "a", "x": 1.0, "y": None}, {"net": "long", "x": 1234.6, "ok": True, "more": 1})
    text = Table("t", ("net", "x", "y", "ok"), rows).markdown()
    assert text.splitlines() == [
        "| net  |    x |  y |  ok |",
        "| ---- | ---: | -: | --: |",
        "| a    | 1.00 |  - |   - |",
        "| long | 1235 |  - | yes |",
    ]
    result = Result("5.9", "none", "Nothing", (Table("t", ("net",), rows),), ("one",))
    assert result.markdown().startswith("## 5.9 Nothing\n\n**t**\n\n| net  |\n")
    assert result.markdown().endswith("\n\n* one\n")
