from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import lowtide
from benchmarks import backward, ogc, output, overhead
from benchmarks.rivals import n_stages, sequential, stages, wrap_every_block
from lowtide.acting.loss import scalar_loss
from tests.networks import NETWORKS

CHAINS = ["alexnet", "resnet18", "densenet121", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t"]
GROUPED = ["gpt2", "llama", "bert"]
QUICK = {"resnet18", "densenet121", "gpt2", "bert"}


def some(names: list[str]) -> list[object]:
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", some(CHAINS))
def test_a_chain_of_stages_computes_what_the_network_does(name: str) -> None:
    network = NETWORKS[name]()
    model = network.model.eval()
    chain = stages(name, model)
    assert chain is not None
    with torch.no_grad():
        expected = model(*network.args)
        assert torch.allclose(torch.nn.Sequential(*chain)(*network.args), expected, atol=1e-5)


@pytest.mark.parametrize("name", some(GROUPED))
@pytest.mark.parametrize("segments", [1, 4, 6])
def test_grouped_blocks_compute_what_the_network_does(name: str, segments: int) -> None:
    network = NETWORKS[name](batch=2)
    network.model.eval()
    with torch.no_grad():
        expected = network.model(**network.kwargs).loss
        assert n_stages(name, network) == 6
        assert torch.allclose(sequential(name, network, segments)().loss, expected)


@pytest.mark.parametrize(
    ("name", "blocks"), [("resnet18", 8), ("densenet121", 61), ("gpt2", 6), ("t5", 8), ("unet", 9), ("alexnet", 3)]
)
def test_every_block_is_wrapped(name: str, blocks: int) -> None:
    network = NETWORKS[name](batch=2)
    assert wrap_every_block(name, network.model) == blocks
    calls: list[object] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: calls.append(t) or t, lambda t: t):
        loss = scalar_loss(network.model(*network.args, **network.kwargs), network.loss)
    assert calls
    loss.backward()


def test_ogc_keeps_its_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ogc.json"
    assert ogc.main(["--only", "vgg11,resnet18", "-o", str(file)]) == 0
    out = capsys.readouterr().out
    assert "7 of 7 limits kept" in out
    assert "2352 +19.5%" in out
    data = json.loads(file.read_text())
    assert [row["net"] for row in data["rows"]] == ["vgg11", "resnet18", "geometric mean"]
    assert data["where"]["versions"]["torch"] == torch.__version__.partition("+")[0]


def test_a_broken_limit_is_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    report = output.Report("x", "title", ("a",))
    report.add(a=1.5)
    report.limits.append(output.Limit("a", 1.5, 1.0))
    assert report.finish(None) == 1
    out = capsys.readouterr().out
    assert "BROKEN  a: 1.5 (at most 1)" in out
    assert "FAIL  0 of 1 limits kept" in out


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SystemExit, match="unknown: nonet"):
        ogc.main(["--only", "nonet"])


def test_overhead_runs(capsys: pytest.CaptureFixture[str]) -> None:
    overhead.main(["--only", "GRU over 100 steps", "--repeat", "1"])
    assert "GRU over 100 steps" in capsys.readouterr().out


def test_backward_of_real_steps_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "backward.json"
    backward.main(["--only", "unet", "--small", "--repeat", "1", "-o", str(file)])
    assert "2 limits kept" in capsys.readouterr().out
    (row,) = json.loads(file.read_text())["rows"]
    net = NETWORKS["unet"]()
    step = lowtide.trace(net.model, net.args, net.kwargs, loss=net.loss)
    assert row["recomputed"] == lowtide.plan(step, compress=False).recompute_ops
    assert 0 < row["rounds"][0]["recomputed"] < row["rounds"][0]["backward clocked"]
