"""Modules that keep state, share parameters, or are frozen in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from tests.same import Made, assert_same


def seq(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


class Recurrent(nn.Module):
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.a, self.rnn = nn.Linear(6, 6), make()
        self.b = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Any:
        out, state = self.rnn(torch.tanh(self.a(x)))
        return self.b(out).sigmoid(), state


RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(6, 5),
    "gru": lambda: nn.GRU(6, 5, batch_first=True),
    "rnn": lambda: nn.RNN(6, 5, nonlinearity="relu"),
    "deep lstm with dropout": lambda: nn.LSTM(6, 5, num_layers=3, dropout=0.3),
    "two ways": lambda: nn.LSTM(6, 5, num_layers=2, bidirectional=True, dropout=0.2),
    "projected": lambda: nn.LSTM(6, 5, proj_size=3),
    "two ways, gru": lambda: nn.GRU(6, 5, num_layers=2, bidirectional=True, dropout=0.2),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_modules(name: str) -> None:
    def make() -> Made:
        model = Recurrent(RECURRENT[name])
        model(torch.zeros(3, 2, 6))  # lazy layers
        return model, (torch.randn(7, 2, 6, requires_grad=True),), None

    assert_same(make)


def test_packed_sequences() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.rnn = nn.Linear(6, 6), nn.LSTM(6, 5)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(torch.tanh(self.a(x)), lengths, enforce_sorted=False)
            out, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])
            return out.sin()

    step = assert_same(lambda: (Packed(), (torch.randn(7, 3, 6), torch.tensor([7, 3, 5])), None))
    assert "real" in step.meta


class Attends(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.a, self.mha = nn.Linear(8, 8), nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.a(x))
        out, weights = self.mha(h, h, h, need_weights=True)
        return out.sin(), weights


MODULES: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "attention": lambda: (Attends(dropout=0.2), torch.randn(2, 5, 8)),
    "attention with extras": lambda: (Attends(add_bias_kv=True, add_zero_attn=True), torch.randn(2, 5, 8)),
    "encoder layer": lambda: (
        seq(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), nn.TransformerEncoderLayer(8, 2, 16)),
        torch.randn(2, 5, 8),
    ),
    "batch norm": lambda: (seq(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True)), torch.randn(2, 3, 6, 6)),
    "batch norm, cumulative": lambda: (
        seq(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Sigmoid()),
        torch.randn(2, 3, 6, 6),
    ),
    "batch norm without statistics": lambda: (
        seq(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Tanh()),
        torch.randn(2, 3, 6, 6),
    ),
    "batch norm in eval mode": lambda: (
        seq(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval(), nn.Tanh()),
        torch.randn(2, 3, 6, 6),
    ),
    "instance norm": lambda: (
        seq(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.ReLU(True)),
        torch.randn(2, 3, 6, 6),
    ),
    "group norm": lambda: (seq(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(True)), torch.randn(2, 3, 6, 6)),
    "local response": lambda: (seq(nn.Conv2d(3, 4, 3), nn.LocalResponseNorm(2)), torch.randn(2, 3, 6, 6)),
    "spectral norm": lambda: (
        seq(
            parametrizations.spectral_norm(nn.Linear(6, 6)), nn.Tanh(), parametrizations.spectral_norm(nn.Linear(6, 6))
        ),
        torch.randn(4, 6),
    ),
    "old spectral norm": lambda: (
        seq(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), nn.Tanh(), nn.utils.spectral_norm(nn.Conv2d(4, 4, 3))),
        torch.randn(2, 3, 6, 6),
    ),
    "weight norm": lambda: (
        seq(parametrizations.weight_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 6)),
        torch.randn(4, 6),
    ),
    "orthogonal": lambda: (seq(parametrizations.orthogonal(nn.Linear(6, 6)), nn.Tanh()), torch.randn(4, 6)),
    "pooling": lambda: (
        seq(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        torch.randn(2, 3, 9, 9),
    ),
    "transposed": lambda: (
        seq(nn.ConvTranspose2d(3, 4, 3, 2), nn.PReLU(4), nn.PixelShuffle(2), nn.ReflectionPad2d(1), nn.Conv2d(1, 2, 3)),
        torch.randn(2, 3, 4, 4),
    ),
    "dropouts": lambda: (
        seq(nn.Linear(6, 6), nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.Linear(6, 6), nn.Dropout(0.3, inplace=True)),
        torch.randn(4, 6),
    ),
    "complex layers": lambda: (nn.Linear(6, 6, dtype=torch.complex64), torch.randn(4, 6, dtype=torch.complex64)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_torch(name: str) -> None:
    def make() -> Made:
        model, x = MODULES[name]()
        return seq(model).train(model.training), (x.requires_grad_(),), None

    # A single layer saves nothing but what is there anyway.
    assert_same(make, recomputes=name not in {"complex layers"})


class Embeds(nn.Module):
    def __init__(self, sparse: bool, bag: str = "", **options: Any) -> None:
        super().__init__()
        self.bag = bag
        self.e = (
            nn.EmbeddingBag(20, 6, mode=bag, sparse=sparse) if bag else nn.Embedding(20, 6, sparse=sparse, **options)
        )
        self.f = nn.Linear(6, 6)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.e(ids) * 2
        return torch.sin(self.f(torch.tanh(h))).exp()


@pytest.mark.parametrize(
    "options",
    [
        {"sparse": False},
        {"sparse": True},
        {"sparse": False, "max_norm": 0.5},
        {"sparse": False, "padding_idx": 0, "scale_grad_by_freq": True},
        {"sparse": True, "bag": "sum"},
        {"sparse": False, "bag": "mean"},
        {"sparse": False, "bag": "max"},
    ],
    ids=str,
)
def test_embeddings(options: dict[str, Any]) -> None:
    assert_same(lambda: (Embeds(**options), (torch.randint(0, 20, (4, 5)),), None))


def test_a_cosine_loss_that_writes_its_weights_back() -> None:
    """Parameters replaced, renormalised and averaged by forward itself."""

    class Averages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.teacher = nn.Linear(6, 6), nn.Linear(6, 6).requires_grad_(False)
            self.register_buffer("center", torch.zeros(6))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.history: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                for p, q in zip(self.teacher.parameters(), self.f.parameters(), strict=True):
                    p.lerp_(q, 0.1)
                target = self.teacher(x).softmax(1)
                self.center.mul_(0.9).add_(target.mean(0), alpha=0.1)
            self.steps += 1
            self.history.append(target.mean())
            self.center = self.center.clone()  # pyright: ignore
            logits = torch.tanh(self.f(x).sin()) - self.center
            return -(target * logits.log_softmax(1)).sum(1)

    assert_same(lambda: (Averages(), (torch.randn(4, 6),), None))


def test_tied_shared_and_repeated_modules() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(12, 6)
            self.block = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6))
            self.again = self.block
            self.head = nn.Linear(6, 12, bias=False)
            self.head.weight = self.e.weight
            self.part = nn.Parameter(self.block[0].weight.data.view(-1)[:6])  # pyright: ignore

        def forward(self, ids: Tensor) -> Tensor:
            h = self.e(ids) * self.part
            for _ in range(3):
                h = h + self.again(self.block(h))
            return F.cross_entropy(self.head(h).flatten(0, 1), ids.flatten())

    assert_same(lambda: (Tied(), (torch.randint(0, 12, (3, 5)),), None))


def test_adapters_on_a_frozen_base() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.ModuleList(nn.Linear(6, 6).requires_grad_(False) for _ in range(4))
            self.down = nn.ModuleList(nn.Linear(6, 2, bias=False) for _ in range(2))
            self.up = nn.ModuleList(nn.Linear(2, 6, bias=False) for _ in range(2))
            self.norm = nn.BatchNorm1d(6).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            for k, base in enumerate(self.base):
                h = base(x)
                if k >= 2:
                    h = h + F.dropout(self.up[k - 2](self.down[k - 2](x)), 0.1)
                x = self.norm(torch.relu_(h)) + x
            return x

    assert_same(lambda: (Adapted(), (torch.randn(5, 6),), None))


@pytest.mark.parametrize("freeze", [["0"], ["2"], ["4"], ["0", "2"], ["2", "4"]], ids=str)
def test_a_plan_for_another_set_of_trained_parameters(freeze: list[str]) -> None:
    """The same ops, but autograd saves other tensors."""

    def make(frozen: list[str]) -> Callable[[], Made]:
        def f() -> Made:
            model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 6), nn.GELU())
            for name in frozen:
                model.get_submodule(name).requires_grad_(False)
            return model, (torch.randn(4, 6),), None

        return f

    from tests.same import traced

    assert_same(make(freeze), step=traced(make([])))
    assert_same(make([]), step=traced(make(freeze)))


def test_parametrizations_are_cached_inside_a_block() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = parametrizations.weight_norm(nn.Linear(6, 6))

        def forward(self, x: Tensor) -> Tensor:
            with parametrize.cached():
                return torch.tanh(self.f(torch.tanh(self.f(x))))

    assert_same(lambda: (Cached(), (torch.randn(4, 6),), None))
