"""A translation model in the shape of GNMT: deep LSTMs with residual connections and attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lowtide.bench.models.network import Inputs, Recipe

VOCABULARY = 32_000


class Gnmt(nn.Module):
    """Wu et al. 2016 (arXiv 1609.08144): an encoder whose first layer reads both ways, a decoder whose first layer
    asks an attention over the encoder's outputs, residual connections from the third layer on.

    Attention is additive, and its context goes into every layer of the decoder. (N, S) and (N, T) word numbers ->
    mean cross-entropy of words 2 to T of the target.
    """

    def __init__(self, vocabulary: int = VOCABULARY, width: int = 512, layers: int = 4, dropout: float = 0.2) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, width)
        self.target = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.both_ways = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleList(
            nn.LSTM(2 * width if k == 0 else width, width, batch_first=True) for k in range(layers - 1)
        )
        self.first = nn.LSTM(width, width, batch_first=True)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1))
        self.output = nn.Linear(width, vocabulary)

    def encode(self, source: Tensor) -> Tensor:
        """(N, S) -> (N, S, width)."""
        x, _ = self.both_ways(self.dropout(self.source(source)))
        for k, layer in enumerate(self.encoder):
            y, _ = layer(self.dropout(x))
            x = y if k == 0 else x + y
        return x

    def attend(self, x: Tensor, memory: Tensor) -> Tensor:
        """(N, T, width), (N, S, width) -> what each of the T words sees of the source, (N, T, width)."""
        both = torch.tanh(self.query(x).unsqueeze(2) + self.key(memory).unsqueeze(1))
        weights = self.score(both).squeeze(-1).softmax(-1)
        return weights @ memory

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encode(source)
        x, _ = self.first(self.dropout(self.target(target[:, :-1])))
        context = self.attend(x, memory)
        for k, layer in enumerate(self.decoder):
            y, _ = layer(self.dropout(torch.cat([x, context], -1)))
            x = y if k == 0 else x + y
        scores = self.output(x)
        return nn.functional.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())


def _sentences(batch: int, length: int) -> Inputs:
    return (torch.randint(0, VOCABULARY, (batch, length)), torch.randint(0, VOCABULARY, (batch, length + 1)))


RECIPE = Recipe(
    "gnmt", Gnmt, _sentences, 24, "LSTM translation in GNMT's shape, 4 + 4 layers of 512, attention", meta_differs=True
)
