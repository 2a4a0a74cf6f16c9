"""Real networks, for tests and benchmarks: each is one training step that runs in a second or so on two cores.

Images and widths are cut where a network allows it. Dropout is on. Benchmarks ask for larger batches, so that
activations outweigh parameters as they do in training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """What to call, and with what. `loss` None: the default one."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    loss: Callable[[Any], Tensor] | None = None


def _vision(name: str, batch: int, size: int, **options: Any) -> Callable[..., Network]:
    def make(batch: int = batch, size: int = size) -> Network:
        import torchvision

        torch.manual_seed(0)
        more = {"image_size": size} if name.startswith("vit") else {}
        model = getattr(torchvision.models, name)(weights=None, num_classes=10, **options, **more)
        return Network(model.train(), (torch.randn(batch, 3, size, size),))

    return make


class _Double(nn.Sequential):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Ronneberger et al. 2015, with `width` channels at full resolution: long skips from encoder to decoder."""

    def __init__(self, width: int = 16, depth: int = 4, classes: int = 3) -> None:
        super().__init__()
        sizes = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(_Double(a, b) for a, b in zip([3, *sizes[:-2]], sizes[:-1], strict=True))
        self.bottom = _Double(sizes[-2], sizes[-1])
        self.pool = nn.MaxPool2d(2)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in reversed(sizes[:-1]))
        self.up = nn.ModuleList(_Double(2 * n, n) for n in reversed(sizes[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([skips.pop(), grow(x)], 1))
        return self.head(x)


def unet(batch: int = 2, size: int = 96) -> Network:
    torch.manual_seed(0)
    target = torch.randint(0, 3, (batch, size, size))
    x = torch.randn(batch, 3, size, size)
    return Network(UNet().train(), (x,), {}, lambda out: nn.functional.cross_entropy(out, target))


def _ids(batch: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def gpt2(batch: int = 4, layers: int = 6, length: int = 128, width: int = 128) -> Network:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers, n_embd=width, n_head=4, vocab_size=512, n_positions=length,
        resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    ids = _ids(batch, length, 512)
    return Network(GPT2LMHeadModel(config).train(), (), {"input_ids": ids, "labels": ids})


def llama(batch: int = 4) -> Network:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=128, intermediate_size=344, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=512, max_position_embeddings=128, attention_dropout=0.1, use_cache=False,
    )  # fmt: skip
    ids = _ids(batch, 128, 512)
    return Network(LlamaForCausalLM(config).train(), (), {"input_ids": ids, "labels": ids})


def bert(batch: int = 4) -> Network:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=128, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4, vocab_size=512,
        max_position_embeddings=128, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    ids = _ids(batch, 128, 512)
    mask = torch.ones(batch, 128, dtype=torch.int64)
    mask[1, 100:] = 0
    return Network(BertForMaskedLM(config).train(), (), {"input_ids": ids, "attention_mask": mask, "labels": ids})


def t5(batch: int = 4) -> Network:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        d_model=128, d_kv=32, d_ff=512, num_layers=4, num_heads=4, vocab_size=512, dropout_rate=0.1,
        use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    ids = _ids(batch, 128, 512)
    return Network(T5ForConditionalGeneration(config).train(), (), {"input_ids": ids, "labels": _ids(batch, 96, 512)})


# name -> factory(batch=..., size=...) for images, factory(batch=...) for text
NETWORKS: dict[str, Callable[..., Network]] = {
    "alexnet": _vision("alexnet", 16, 96),
    "vgg16_bn": _vision("vgg16_bn", 2, 64),
    "resnet18": _vision("resnet18", 4, 96),
    "resnet50": _vision("resnet50", 4, 96),
    "densenet121": _vision("densenet121", 4, 64),
    "inception_v3": _vision("inception_v3", 2, 299, init_weights=False),
    "efficientnet_b0": _vision("efficientnet_b0", 4, 64),
    "convnext_tiny": _vision("convnext_tiny", 4, 64),
    "vit_b_16": _vision("vit_b_16", 4, 64, dropout=0.1),
    "swin_t": _vision("swin_t", 4, 64),
    "unet": unet,
    "gpt2": gpt2,
    "llama": llama,
    "bert": bert,
    "t5": t5,
}
