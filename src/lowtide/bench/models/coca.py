"""An image-text model in the shape of CoCa: one contrastive and one captioning loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, scaled_dot_product_attention

from lowtide.bench.models.network import Inputs, Recipe

VOCABULARY = 8_000
WORDS = 32


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
        def split(t: Tensor) -> Tensor:
            return t.view(*t.shape[:-1], self.heads, -1).transpose(1, 2)

        key, value = self.key_value(memory).chunk(2, -1)
        y = scaled_dot_product_attention(split(self.query(x)), split(key), split(value), is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(2))


class _Block(nn.Module):
    """Norm first; self-attention, cross-attention if it looks at a memory, and a perceptron."""

    def __init__(self, width: int, heads: int, causal: bool, crossed: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm = nn.LayerNorm(width)
        self.attention = _Attention(width, heads)
        self.cross_norm = nn.LayerNorm(width) if crossed else None
        self.cross = _Attention(width, heads) if crossed else None
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, self.causal)
        if self.cross is not None and self.cross_norm is not None and memory is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.mlp(x)


class Coca(nn.Module):
    """Yu et al. 2022 (arXiv 2205.01917): an image encoder, a text decoder whose first half sees the text alone and
    gives the contrastive loss, and whose second half looks at the image and gives the captioning loss.

    (N, 3, H, W) images and (N, T) words -> the sum of both losses. One learned query pools the image for the
    contrastive loss; the last word stands for the text.
    """

    def __init__(self, width: int = 384, heads: int = 6, layers: int = 12, patch: int = 16, image: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, (image // patch) ** 2, width))
        self.image = nn.ModuleList(_Block(width, heads, False, False) for _ in range(layers))
        self.pool_query = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.pool = _Attention(width, heads)
        self.words = nn.Embedding(VOCABULARY, width)
        self.word_place = nn.Parameter(0.02 * torch.randn(1, WORDS, width))
        self.text = nn.ModuleList(_Block(width, heads, True, False) for _ in range(layers // 2))
        self.caption = nn.ModuleList(_Block(width, heads, True, True) for _ in range(layers // 2))
        self.scale = nn.Parameter(torch.tensor(2.7))
        self.output = nn.Linear(width, VOCABULARY)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        seen = self.patches(image).flatten(2).transpose(1, 2) + self.place
        for block in self.image:
            seen = block(seen)
        read = self.words(text[:, :-1]) + self.word_place
        for block in self.text:
            read = block(read)
        pooled = self.pool(self.pool_query.expand(image.shape[0], -1, -1), seen)[:, 0]
        alike = normalize(pooled, dim=-1) @ normalize(read[:, -1], dim=-1).T * self.scale.exp()
        pairs = torch.arange(image.shape[0], device=alike.device)
        contrastive = (cross_entropy(alike, pairs) + cross_entropy(alike.T, pairs)) / 2
        for block in self.caption:
            read = block(read, seen)
        return contrastive + cross_entropy(self.output(read).flatten(0, 1), text[:, 1:].flatten())


def _pairs(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 3, size, size), torch.randint(0, VOCABULARY, (batch, WORDS + 1)))


RECIPE = Recipe(
    "coca", Coca, _pairs, 224, "image-text model in CoCa's shape, 12 + 6 + 6 blocks of 384", meta_differs=True
)
