from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.errors import InputError
from lowtide.models import InputSpec, load_model, parse_input, parse_settings
from lowtide.models.build import build

TINY_GPT: dict[str, Any] = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 50, "n_positions": 32}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("8x3x224x224", InputSpec((8, 3, 224, 224))),
        ("8", InputSpec((8,))),
        (" 2X128:int64 ", InputSpec((2, 128), "int64")),
        ("2x128:torch.int64", InputSpec((2, 128), "int64")),
        ("2x4:bf16", InputSpec((2, 4), "bfloat16")),
        ("labels=2x128:int64", InputSpec((2, 128), "int64", "labels")),
        ("y=8:int64:10", InputSpec((8,), "int64", "y", 10)),
        ("mask=2x4:bool", InputSpec((2, 4), "bool", "mask")),
        ("scalar", InputSpec(())),
        ("t=scalar:float64", InputSpec((), "float64", "t")),
    ],
)
def test_inputs_are_read_and_read_back(text: str, spec: InputSpec) -> None:
    assert parse_input(text) == spec
    assert parse_input(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    ["", "x", "8x", "8x3xx4", "0x3", "8x0", "-1x3", "8x3:int65", "8 by 3", "=8x3", "a b=3", "8:int64:0", "8:int64:x",
     "8.5x3", "a=b=3", "8:::", "8,3", "²x3"],
)  # fmt: skip
def test_what_is_no_input_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_input(text)
    assert text.strip() in str(caught.value) or "int65" in str(caught.value)


def test_settings_are_python_values_or_text() -> None:
    got = parse_settings(["a=4", "b=0.5", "c=true", "d=None", "e=gelu", "f=[1,2]", "g=x=y", "h="])
    assert got == {"a": 4, "b": 0.5, "c": True, "d": None, "e": "gelu", "f": [1, 2], "g": "x=y", "h": ""}


@pytest.mark.parametrize("texts", [["a"], ["=4"], ["a b=4"], ["a=1", "a=2"], ["1=2"]])
def test_what_is_no_setting_is_refused(texts: list[str]) -> None:
    with pytest.raises(InputError):
        parse_settings(texts)


def test_a_torchvision_model_on_meta_costs_nothing_and_trains() -> None:
    loaded = load_model("torchvision:resnet18")
    assert loaded.model.training
    assert {p.device.type for p in loaded.model.parameters()} == {"meta"}
    args, kwargs = loaded.inputs([parse_input("2x3x32x32")])
    assert args[0].shape == (2, 3, 32, 32)
    assert args[0].is_meta
    assert kwargs == {}
    assert loaded.model(*args).shape == (2, 1000)
    assert loaded.describe_inputs() == "8x3x224x224"


def test_a_pretrained_backbone_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", lambda *_, **__: pytest.fail("this downloads"))
    assert load_model("torchvision:fcn_resnet50").model is not None
    with pytest.raises(InputError, match="would download"):
        load_model("torchvision:resnet18", {"weights": "DEFAULT"})
    with pytest.raises(InputError, match="would download"):
        load_model("timm:resnet18", {"pretrained": True})


def test_random_weights_and_inputs_repeat_with_the_seed_and_leave_the_stream_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    made = [load_model("hf:gpt2", TINY_GPT, device="cpu", seed=s) for s in (1, 1, 2)]
    ids = [m.inputs([parse_input("2x8")], seed=s)[1]["input_ids"] for m, s in zip(made, (1, 1, 2), strict=True)]
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [next(m.model.parameters()) for m in made]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(ids[0], ids[1])
    assert not torch.equal(ids[0], ids[2])


@pytest.mark.parametrize(
    ("name", "settings", "cls"),
    [
        ("gpt2", TINY_GPT, "GPT2LMHeadModel"),
        ("GPT2Config", TINY_GPT, "GPT2LMHeadModel"),
        ("GPT2ForSequenceClassification", TINY_GPT, "GPT2ForSequenceClassification"),
        ("bert", {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}, "BertForMaskedLM"),
        (
            "llama",
            {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
             "intermediate_size": 32},
            "LlamaForCausalLM",
        ),
        ("t5", {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_kv": 8, "d_ff": 32}, "T5ForConditionalGeneration"),
    ],
)  # fmt: skip
def test_an_hf_type_gets_the_head_it_is_trained_with(name: str, settings: dict[str, Any], cls: str) -> None:
    loaded = load_model(f"hf:{name}", settings, device="cpu")
    assert type(loaded.model).__name__ == cls
    assert loaded.model.training
    assert getattr(loaded.model.config, "use_cache", False) is False
    args, kwargs = loaded.inputs([parse_input("2x8")])
    assert args == ()
    assert kwargs["input_ids"].dtype == torch.int64
    output = loaded.model(**kwargs)
    assert output.loss.requires_grad
    assert torch.isfinite(output.loss)
    assert getattr(output, "past_key_values", None) is None


def test_hf_labels_can_be_given_and_ids_stay_below_the_vocabulary() -> None:
    loaded = load_model("hf:gpt2", TINY_GPT, device="cpu")
    _, kwargs = loaded.inputs([parse_input("64x32"), parse_input("labels=64x32:int64:3")])
    assert kwargs["labels"].max() == 2
    assert 40 < kwargs["input_ids"].max() < 50
    assert loaded.describe_inputs([parse_input("64x32")]) == "input_ids=64x32:int64"


def test_masks_are_ones_and_whole_numbers_fit_the_smallest_embedding() -> None:
    loaded = load_model("hf:gpt2", TINY_GPT, device="cpu")
    _, kwargs = loaded.inputs([parse_input("2x8"), parse_input("attention_mask=2x8:int64")])
    assert kwargs["attention_mask"].eq(1).all()


def test_dtype_goes_to_parameters_and_inputs() -> None:
    loaded = load_model("torchvision:resnet18", dtype="bfloat16")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.inputs()[0][0].dtype == torch.bfloat16
    with pytest.raises(InputError, match="int64"):
        load_model("torchvision:resnet18", dtype="int64")


@pytest.mark.parametrize(
    ("spec", "settings", "says"),
    [
        ("torchvision:resnet5", {}, "did you mean resnet50"),
        ("torchvision:", {}, "torchvision:resnet50"),
        ("timm:vit_tiny_patch16_22", {}, "did you mean vit_tiny_patch16_224"),
        ("hf:gtp2", {}, "did you mean gpt2"),
        ("hf:gpt2", {"n_layers": 3}, "did you mean n_layer"),
        ("hf:gpt2", {"n_head": 5}, "n_head=5"),
        ("torchvision:resnet18", {"depth": 3}, "depth=3"),
        ("resnet18", {}, "'resnet18' is not a model"),
        ("http://example.org/model", {}, "is not a model"),
        ("no/such/file.py:make", {}, "no/such/file.py"),
        ("", {}, "'' is not a model"),
    ],
)
def test_an_unknown_model_or_setting_is_named_with_what_is_close(
    spec: str, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_model(spec, settings)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


FILE = """
from dataclasses import dataclass
import torch
from torch import nn
from neighbour import WIDTH

@dataclass
class Made:
    x: int

def model(width=WIDTH):
    return nn.Linear(width, 2)

def with_args(width=4):
    return nn.Linear(width, 2), torch.ones(3, width)

def with_kwargs():
    return nn.Linear(4, 2), {"input": torch.ones(3, 4)}

def with_loss():
    return nn.Linear(4, 2), (torch.ones(3, 4),), lambda y: y.square().sum()

def reads():
    steps = torch.linspace(0, 1, 4).tolist()
    layer = nn.Linear(4, len(steps))
    layer.tied = nn.Linear(4, 4)
    layer.tied.weight = layer.weight
    return layer, torch.ones(3, 4)

def fails():
    raise ValueError("first\\nsecond")

def wrong():
    return 3

def leaves():
    raise SystemExit(3)

def lazy():
    return nn.Sequential(nn.LazyLinear(4)), torch.ones(3, 4)

def wrong_loss():
    return nn.Linear(4, 2), (torch.ones(3, 4),), 3

ready = nn.Linear(2, 2)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "neighbour.py").write_text("WIDTH = 4\n")
    (tmp_path / "made.py").write_text(FILE)
    return str(tmp_path / "made.py")


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("name", ["with_args", "with_kwargs", "with_loss"])
def test_a_factory_brings_its_own_inputs(file: str, name: str, device: str) -> None:
    loaded = load_model(f"{file}:{name}", device=device)
    args, kwargs = loaded.inputs()
    (x,) = [*args, *kwargs.values()]
    assert x.device.type == device
    assert loaded.model(*args, **kwargs).shape == (3, 2)
    assert (loaded.loss is None) == (name != "with_loss")
    assert loaded.describe_inputs() == ("input=3x4" if kwargs else "3x4")


def test_a_factory_takes_settings_and_inputs(file: str) -> None:
    loaded = load_model(f"{file}:model", {"width": 6}, device="cpu")
    (x,), _ = loaded.inputs([parse_input("5x6")])
    assert loaded.model(x).shape == (5, 2)
    with pytest.raises(InputError, match="--input"):
        loaded.inputs()


def test_a_constructor_that_reads_values_is_built_all_the_same_and_ties_stay(file: str) -> None:
    loaded = load_model(f"{file}:reads", device="meta")
    assert loaded.inputs()[0][0].is_meta
    assert {p.device.type for p in loaded.model.parameters()} == {"meta"}
    tied: Any = loaded.model
    assert tied.tied.weight is tied.weight


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fails", "ValueError: first"),
        ("wrong", "returned (int)"),
        ("leaves", "SystemExit: 3"),
        ("lazy", "0.weight"),
        ("wrong_loss", "a loss of type int"),
        ("modle", "did you mean model"),
        ("ready", "is a model"),
        ("WIDTH", "no function 'WIDTH'"),
    ],
)
def test_a_factory_that_does_not_do_is_named(file: str, name: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load_model(f"{file}:{name}")
    assert says in str(caught.value)
    assert "second" not in str(caught.value)


def test_a_file_with_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(InputError, match="line 2"):
        load_model(f"{tmp_path / 'bad.py'}:f")


def test_initialisation_is_skipped_only_for_the_way_around() -> None:
    def make() -> nn.Module:
        torch.zeros(2).tolist()
        return nn.Linear(2, 2)

    assert next(build(make, device="meta").parameters()).is_meta
    assert next(build(make, device="cpu").parameters()).abs().sum() > 0
