"""What a person can do by hand: `checkpoint_sequential` over a network flattened to a chain of stages, with any number
of segments, and `torch.utils.checkpoint` (non-reentrant) around every block.

Only memory is asked of them here. Whether their gradients are right is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.networks import Network


class _Prelude(nn.Module):
    """What `VisionTransformer.forward` does before its encoder's layers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        x = self.model._process_input(x)
        x = torch.cat([self.model.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.model.encoder.dropout(x + self.model.encoder.pos_embedding)


class _First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class _Dense(nn.Module):
    """A DenseNet layer as a stage of a chain: it appends its features to its input."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layer(x)], 1)


def _flat(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Plain `nn.Sequential`s taken apart, all the way down."""
    out: list[nn.Module] = []
    for m in modules:
        out += _flat(m) if type(m) is nn.Sequential or type(m).__name__ == "Conv2dNormActivation" else [m]
    return out


def stages(name: str, model: Any) -> list[nn.Module] | None:
    """The network as a chain of modules that computes what it computes, or None if it is none."""
    if name == "alexnet" or name.startswith("vgg"):
        return _flat([model.features, model.avgpool, nn.Flatten(), model.classifier])
    if name.startswith("resnet"):
        body = [model.layer1, model.layer2, model.layer3, model.layer4]
        return _flat([model.conv1, model.bn1, model.relu, model.maxpool, *body, model.avgpool, nn.Flatten(), model.fc])
    if name.startswith("densenet"):
        body: list[nn.Module] = []
        for m in model.features:
            if type(m).__name__ == "_DenseBlock":
                body += [_Dense(layer) for layer in m.values()]
            elif type(m).__name__ == "_Transition":
                body += list(m)
            else:
                body.append(m)
        return [*body, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.classifier]
    if name.startswith("efficientnet"):
        return _flat([model.features, model.avgpool, nn.Flatten(), model.classifier])
    if name.startswith("convnext"):
        return _flat([model.features, model.avgpool, model.classifier])
    if name.startswith("vit"):
        return _flat([_Prelude(model), *model.encoder.layers, model.encoder.ln, _First(), model.heads])
    if name.startswith("swin"):
        return _flat([model.features, model.norm, model.permute, model.avgpool, model.flatten, model.head])
    return None


_BLOCKS = {
    "BasicBlock", "Bottleneck", "_DenseLayer", "_Transition", "MBConv", "CNBlock", "EncoderBlock",
    "SwinTransformerBlock", "PatchMerging", "InceptionA", "InceptionB", "InceptionC", "InceptionD", "InceptionE",
    "InceptionAux", "_Double", "GPT2Block", "LlamaDecoderLayer", "BertLayer", "T5Block",
}  # fmt: skip


def wrap_every_block(name: str, model: nn.Module) -> int:
    """`torch.utils.checkpoint` around every block, in place. How many that are.

    Networks without blocks (AlexNet, VGG) are cut after every pooling.
    """
    blocks = [m for m in model.modules() if type(m).__name__ in _BLOCKS]
    if not blocks and isinstance(getattr(model, "features", None), nn.Sequential):
        groups: list[list[nn.Module]] = [[]]
        for m in model.features:  # pyright: ignore
            groups[-1].append(m)
            if isinstance(m, nn.MaxPool2d):
                groups.append([])
        blocks = [nn.Sequential(*g) for g in groups if g]
        model.features = nn.Sequential(*blocks)
    for m in blocks:
        m.forward = _checkpointed(m.forward)
    return len(blocks)


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        # DenseNet's block goes on filling the list that it gives its layers: run again they would find a longer one
        args = tuple(list(a) if isinstance(a, list) else a for a in args)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return wrapped


class _Group(nn.Module):
    """Consecutive blocks of a language model under one checkpoint: what `checkpoint_sequential` does to a chain, for
    models that call their blocks with more than one argument."""

    def __init__(self, blocks: list[nn.Module], checkpointed: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.checkpointed = checkpointed

    def __getattr__(self, name: str) -> Any:
        """Models ask their blocks for settings (`attention_type`)."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("blocks")[0], name)

    def run(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        for block in self.blocks:
            out = block(hidden, *args, **kwargs)
            hidden = out if isinstance(out, Tensor) else out[0]
        return hidden

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.checkpointed:
            return checkpoint(self.run, hidden, *args, use_reentrant=False, **kwargs)
        return self.run(hidden, *args, **kwargs)


def _block_list(name: str, model: Any) -> tuple[Any, str] | None:
    """Where a language model keeps its chain of blocks. T5's pass position biases on, and are left alone."""
    return {
        "gpt2": lambda: (model.transformer, "h"),
        "gpt": lambda: (model, "blocks"),
        "llama": lambda: (model.model, "layers"),
        "bert": lambda: (model.bert.encoder, "layer"),
    }.get(name, lambda: None)()


def n_stages(name: str, network: Network) -> int:
    """Length of the chain that `sequential` cuts, 0 if there is none."""
    chain = stages(name, network.model)
    if chain is not None:
        return len(chain)
    found = _block_list(name, network.model)
    return len(getattr(*found)) if found is not None else 0


def sequential(name: str, network: Network, segments: int) -> Callable[[], Any]:
    """A call that runs the network's forward as a chain of `segments` segments, all but the last checkpointed. Language
    models are changed in place: make a new network for each."""
    chain = stages(name, network.model)
    if chain is not None:
        functions = nn.Sequential(*chain)
        return lambda: checkpoint_sequential(functions, segments, network.args[0], use_reentrant=False)
    found = _block_list(name, network.model)
    if found is None:
        raise ValueError(f"{name} is no chain")
    owner, attribute = found
    blocks = list(getattr(owner, attribute))
    size = len(blocks) // segments
    bounds = [*(i * size for i in range(segments)), len(blocks)]
    groups = [_Group(blocks[a:b], b < len(blocks)) for a, b in pairwise(bounds)]
    setattr(owner, attribute, nn.ModuleList(groups))
    for config in {id(m.config): m.config for m in network.model.modules() if hasattr(m, "config")}.values():
        if hasattr(config, "num_hidden_layers"):
            config.num_hidden_layers = segments
    return lambda: network.model(*network.args, **network.kwargs)


def without_inplace(model: nn.Module) -> None:
    """In-place activations off: where one works on a segment's input, checkpointing raises."""
    for m in model.modules():
        if hasattr(m, "inplace"):
            m.inplace = False  # pyright: ignore
