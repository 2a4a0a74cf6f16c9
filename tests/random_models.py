"""Random training steps: module graphs with residuals, branches, views, in-place ops, norms, dropout, reuse, tied and
frozen weights, buffers, tensors that the caller holds, autograd inside forward. All from one seed.

A model is a list of instructions over a pool of tensors of one shape (batch, CHANNELS, SIZE, SIZE). Each instruction
reads tensors of the pool and adds to it or writes into it. Not every program is legal: one that changes in place what
backward needs makes autograd raise, and then a planned step must raise, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHANNELS, SIZE = 4, 5

Pool = list[Tensor]
Instruction = Callable[[Pool], None]
Maker = Callable[["RandomNet", random.Random], Instruction]

MAKERS: dict[str, tuple[Maker, float]] = {}


def kind(weight: float = 1.0) -> Callable[[Maker], Maker]:
    """Register a kind of instruction; `weight` is how often it is drawn."""

    def add(maker: Maker) -> Maker:
        MAKERS[maker.__name__] = (maker, weight)
        return maker

    return add


class RandomNet(nn.Module):
    """`n` random instructions, then some of the pool as outputs."""

    def __init__(self, seed: int, n: int, only: tuple[str, ...] = ()) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.stem = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.layers = nn.ModuleList()
        self.counter = 0
        self.register_buffer("average", torch.zeros(CHANNELS))
        self.log: list[Tensor] = []
        names = list(only) or list(MAKERS)
        weights = [MAKERS[name][1] for name in names]
        self.kinds = rng.choices(names, weights, k=n)
        self.program = [MAKERS[name][0](self, rng) for name in self.kinds]
        self.outputs = [rng.randrange(100) for _ in range(rng.choice([1, 1, 2, 3]))]
        for p in self.layers.parameters():
            if rng.random() < 0.1:
                p.requires_grad_(False)

    def layer(self, rng: random.Random, make: Callable[[], nn.Module]) -> nn.Module:
        """A new layer, or now and then one of that kind that is there already."""
        new = make()
        same = [m for m in self.layers if type(m) is type(new)]
        if same and rng.random() < 0.25:
            return rng.choice(same)
        self.layers.append(new)
        return new

    def forward(self, x: Tensor, y: Tensor) -> list[Tensor]:
        self.counter += 1
        self.log.clear()
        pool = [x, y, self.stem(x)]
        first = pool[-1].mean()
        for instruction in self.program:
            instruction(pool)
        return [pool[-1 - k % len(pool)] for k in self.outputs] + [first] + self.log


def pick(rng: random.Random) -> Callable[[Pool], int]:
    """An index into a pool that may have any length: mostly near its end."""
    k = rng.choice([0, 0, 0, 0, 1, 1, 2, 3, 5, 8])
    return lambda pool: len(pool) - 1 - k % len(pool)


def fresh(net: RandomNet, rng: random.Random, f: Callable[[Tensor], Tensor]) -> Instruction:
    a = pick(rng)
    return lambda pool: pool.append(f(pool[a(pool)]))


POINTWISE: list[Callable[[Tensor], Tensor]] = [
    torch.relu, torch.tanh, torch.sigmoid, F.gelu, F.silu, torch.sin, torch.abs, F.softplus, F.elu, F.hardswish,
    F.mish, lambda t: t * 0.7, lambda t: t + 1.5, lambda t: t.square() * 0.3, lambda t: (t.abs() + 0.1).sqrt(),
    lambda t: torch.exp(-t.abs()), lambda t: t.clamp(-0.8, 1.2), lambda t: t.softmax(1), lambda t: t.log_softmax(-1),
    lambda t: t.cumsum(2) * 0.2, lambda t: t - t.mean((2, 3), keepdim=True), lambda t: F.normalize(t, dim=1),
    lambda t: torch.where(t > 0, t, 0.1 * t), lambda t: t / (1 + t.norm()), lambda t: F.glu(torch.cat([t, t], 1), 1),
    lambda t: t.clone(), lambda t: t.contiguous(memory_format=torch.channels_last) * 1.0,
]  # fmt: skip

VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda t: t.transpose(2, 3), lambda t: t.flip(1), lambda t: t.roll(1, 2), lambda t: t.detach(),
    lambda t: t.mean(1, keepdim=True).expand(-1, CHANNELS, -1, -1), lambda t: t[:, [2, 0, 3, 1]],
    lambda t: torch.cat([t[:, 2:], t[:, :2]], 1), lambda t: torch.stack(t.unbind(1)[::-1], 1),
    lambda t: torch.cat(t.chunk(2, 1)[::-1], 1), lambda t: t.flatten(1).unflatten(1, (CHANNELS, SIZE, SIZE)),
    lambda t: t.reshape(t.shape[0], -1).view(t.shape), lambda t: t.permute(0, 1, 3, 2).contiguous(),
    lambda t: t.view(t.shape), lambda t: t.squeeze(0).unsqueeze(0) if t.shape[0] == 1 else t[:],
    lambda t: t.unfold(3, 1, 1).squeeze(-1), lambda t: t.narrow(1, 1, 2).repeat(1, 2, 1, 1),
]  # fmt: skip

INPLACE: list[Callable[[Tensor], Any]] = [
    Tensor.relu_, Tensor.tanh_, Tensor.sigmoid_,
    lambda t: t.add_(0.5), lambda t: t.mul_(0.9), lambda t: t.clamp_(-1, 1),
    lambda t: F.relu(t, inplace=True), lambda t: F.silu(t, inplace=True), lambda t: F.leaky_relu_(t, 0.1),
    lambda t: F.dropout(t, 0.2, inplace=True), lambda t: t[:, :2].mul_(1.1), lambda t: t[:, 1].zero_(),
    lambda t: t.transpose(2, 3)[:, :, 1:].add_(0.1), lambda t: t.masked_fill_(t > 1, 0.5),
    lambda t: t.__setitem__((slice(None), 0), t[:, 1] * 2), lambda t: t.view(-1)[::2].neg_(),
    lambda t: t[:, 0].copy_(t[:, 1].detach()), lambda t: torch._foreach_mul_([t[:, 0], t[:, 1]], 1.05),
    lambda t: t.index_add_(1, torch.tensor([0, 2]), t[:, :2].detach() * 0.1), lambda t: t.transpose_(2, 3),
]  # fmt: skip

RANDOM: list[Callable[[Tensor], Tensor]] = [
    lambda t: F.dropout(t, 0.3), lambda t: F.dropout2d(t, 0.3), lambda t: F.alpha_dropout(t, 0.2),
    lambda t: t * torch.rand_like(t), lambda t: t + 0.1 * torch.randn(t.shape), lambda t: F.rrelu(t, 0.1, 0.4, True),
    lambda t: t[:, torch.randperm(CHANNELS)], lambda t: t * torch.bernoulli(torch.full_like(t, 0.7)),
    lambda t: t + torch.empty_like(t).normal_() * 0.1, lambda t: t * torch.empty(CHANNELS, 1, 1).uniform_(0.5, 1.5),
    lambda t: t + torch.normal(t.detach(), 0.1) * 0.1, lambda t: t * torch.randint(1, 3, (CHANNELS, 1, 1)),
    lambda t: F.gumbel_softmax(t, dim=1), lambda t: t + torch.empty_like(t).exponential_() * 0.05,
    lambda t: F.fractional_max_pool2d(F.pad(t, (1, 0, 1, 0)), 2, output_size=SIZE),
    lambda t: t[:, torch.multinomial(torch.ones(CHANNELS), CHANNELS)],
]  # fmt: skip

STRUCTURED: list[Callable[[Tensor], Tensor]] = [
    lambda t: F.max_pool2d(t, 3, 1, 1), lambda t: F.avg_pool2d(t, 3, 1, 1),
    lambda t: F.pad(t, (1, 1, 1, 1))[..., 1:-1, 1:-1],
    lambda t: F.interpolate(F.interpolate(t, scale_factor=2.0), size=(SIZE, SIZE), mode="bilinear"),
    lambda t: torch.einsum("bchw,bdhw->bcd", t, t).softmax(-1) @ t.flatten(2) @ torch.eye(SIZE * SIZE),
    lambda t: t.sort(2).values, lambda t: t.topk(SIZE, 3).values, lambda t: t.gather(1, t.argsort(1)),
    lambda t: t.max(1, keepdim=True).values + t, lambda t: torch.fft.irfft(torch.fft.rfft(t) * (0.5 + 0.1j), n=SIZE),
    lambda t: F.scaled_dot_product_attention(t, t, t), lambda t: torch.complex(t, t.sin()).conj().mul(1j).real,
    lambda t: torch.polar(t.abs() + 0.1, t).imag.neg(),
    lambda t: t.scatter_add(1, torch.zeros_like(t[:, :2], dtype=torch.int64), t[:, :2]),
    lambda t: (t.to(torch.bfloat16) * 2).to(t.dtype), lambda t: t.double().exp().log().to(t.dtype),
    lambda t: torch.addcmul(t, t, t, value=0.1), lambda t: torch.lerp(t, t.flip(2), 0.3),
    lambda t: t.where(t > 0, t.detach()),
]  # fmt: skip


def _shaped(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda t: f(t).reshape(t.shape)


@kind(4)
def pointwise(net: RandomNet, rng: random.Random) -> Instruction:
    return fresh(net, rng, rng.choice(POINTWISE))


@kind(2)
def view(net: RandomNet, rng: random.Random) -> Instruction:
    return fresh(net, rng, rng.choice(VIEWS))


@kind(1.5)
def structured(net: RandomNet, rng: random.Random) -> Instruction:
    return fresh(net, rng, _shaped(rng.choice(STRUCTURED)))


@kind(1.5)
def noise(net: RandomNet, rng: random.Random) -> Instruction:
    return fresh(net, rng, rng.choice(RANDOM))


@kind(2)
def inplace(net: RandomNet, rng: random.Random) -> Instruction:
    a, f = pick(rng), rng.choice(INPLACE)

    def run(pool: Pool) -> None:
        t = pool[a(pool)]
        if t.is_leaf and t.requires_grad:
            t = t * 1.0
        if 0 in t.stride():
            t = t.clone()  # expanded tensors cannot be written to
        f(t)
        pool.append(t)

    return run


@kind(3)
def convolution(net: RandomNet, rng: random.Random) -> Instruction:
    size = rng.choice([1, 3])
    conv = net.layer(rng, lambda: nn.Conv2d(CHANNELS, CHANNELS, size, padding=size // 2, bias=rng.random() < 0.6))
    return fresh(net, rng, conv)


@kind(2)
def linear(net: RandomNet, rng: random.Random) -> Instruction:
    return fresh(net, rng, net.layer(rng, lambda: nn.Linear(SIZE, SIZE)))


@kind(2)
def norm(net: RandomNet, rng: random.Random) -> Instruction:
    make = rng.choice(
        [
            lambda: nn.BatchNorm2d(CHANNELS),
            lambda: nn.BatchNorm2d(CHANNELS, momentum=None),
            lambda: nn.BatchNorm2d(CHANNELS).eval(),
            lambda: nn.GroupNorm(2, CHANNELS),
            lambda: nn.LayerNorm(SIZE),
            lambda: nn.InstanceNorm2d(CHANNELS, affine=True, track_running_stats=True),
            lambda: nn.PReLU(CHANNELS),
        ]
    )
    return fresh(net, rng, net.layer(rng, make))


@kind(3)
def binary(net: RandomNet, rng: random.Random) -> Instruction:
    a, b = pick(rng), pick(rng)
    f = rng.choice(
        [torch.add, torch.mul, torch.sub, torch.maximum, torch.matmul, lambda s, t: s + 0.5 * t.tanh(), torch.hypot,
         lambda s, t: torch.cat([s[:, :1], t[:, 1:]], 1), lambda s, t: F.mse_loss(s, t, reduction="none")]
    )  # fmt: skip
    return lambda pool: pool.append(f(pool[a(pool)], pool[b(pool)]))


@kind(1)
def add_into(net: RandomNet, rng: random.Random) -> Instruction:
    a, b = pick(rng), pick(rng)

    def run(pool: Pool) -> None:
        t, other = pool[a(pool)], pool[b(pool)]
        if t.is_leaf or 0 in t.stride():
            t = t * 1.0
        t += other.detach() if other is t else other * 0.5
        pool.append(t)

    return run


@kind(1)
def held(net: RandomNet, rng: random.Random) -> Instruction:
    a = pick(rng)
    return lambda pool: net.log.append(pool[a(pool)].mean((1, 2, 3)))


@kind(0.7)
def by_hand(net: RandomNet, rng: random.Random) -> Instruction:
    """A buffer that forward updates, and reads."""
    a = pick(rng)

    def run(pool: Pool) -> None:
        t = pool[a(pool)]
        with torch.no_grad():
            net.average.mul_(0.9).add_(t.mean((0, 2, 3)), alpha=0.1)
        pool.append(t - net.average.clone().view(-1, 1, 1))

    return run


@kind(0.7)
def teacher(net: RandomNet, rng: random.Random) -> Instruction:
    """A branch without gradients."""
    a = pick(rng)
    layer = net.layer(rng, lambda: nn.Conv2d(CHANNELS, CHANNELS, 1))

    def run(pool: Pool) -> None:
        with torch.no_grad():
            t = layer(pool[a(pool)]).sigmoid()
        pool.append(pool[a(pool)] * t)

    return run


@kind(0.7)
def loop(net: RandomNet, rng: random.Random) -> Instruction:
    layer = net.layer(rng, lambda: nn.Linear(SIZE, SIZE))
    n = rng.choice([2, 3, 5])

    def f(t: Tensor) -> Tensor:
        for _ in range(n):
            t = torch.tanh(layer(t)) + 0.5 * t
        return t

    return fresh(net, rng, f)


@kind(0.5)
def checkpointed(net: RandomNet, rng: random.Random) -> Instruction:
    layer = net.layer(rng, lambda: nn.Conv2d(CHANNELS, CHANNELS, 1))
    return fresh(net, rng, lambda t: checkpoint(lambda s: F.dropout(layer(s).tanh(), 0.2), t, use_reentrant=False))


@kind(0.5)
def cast(net: RandomNet, rng: random.Random) -> Instruction:
    layer = net.layer(rng, lambda: nn.Linear(SIZE, SIZE))

    def f(t: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.tanh(layer(t)).float()

    return fresh(net, rng, f)


@kind(0.5)
def function(net: RandomNet, rng: random.Random) -> Instruction:
    return fresh(
        net, rng, rng.choice([lambda t: Twice.apply(t), lambda t: Hidden.apply(t), lambda t: Dirty.apply(t * 1)])
    )


@kind(0.3)
def another_way(net: RandomNet, rng: random.Random) -> Instruction:
    """A composite op that looks at values, on real tensors only."""
    return fresh(net, rng, lambda t: F.one_hot(t.argmax(1), CHANNELS).movedim(-1, 1) * t)


@kind(0.3)
def gradient_inside(net: RandomNet, rng: random.Random) -> Instruction:
    create = rng.random() < 0.5

    def f(t: Tensor) -> Tensor:
        s = t.detach().requires_grad_() if not t.requires_grad or not create else t
        with torch.enable_grad():
            (g,) = torch.autograd.grad((s.tanh() * s).sum(), s, create_graph=create)
        return t + 0.1 * g

    return fresh(net, rng, f)


@kind(0.3)
def saved_elsewhere(net: RandomNet, rng: random.Random) -> Instruction:
    """Hooks of the user's own."""

    def f(t: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda s: s.double(), lambda s: s.float()):
            return (t.sin() * t).tanh()

    return fresh(net, rng, f)


@kind(0.3)
def past_the_counter(net: RandomNet, rng: random.Random) -> Instruction:
    """A write that autograd does not see."""
    a = pick(rng)

    def run(pool: Pool) -> None:
        t = pool[a(pool)]
        if not t.is_leaf:
            t.data[:, 1].mul_(0.5) if 0 not in t.stride() else None

    return run


class Twice(torch.autograd.Function):
    """Asks for its saved tensors twice, and saves an output."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        out = t.sigmoid()
        ctx.save_for_backward(t, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        out = ctx.saved_tensors[1]
        return g * out * (1 - ctx.saved_tensors[1]) + 0 * ctx.saved_tensors[0]


class Hidden(torch.autograd.Function):
    """Keeps a tensor where no hook sees it, and hands a saved tensor out as a gradient."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.hidden = t.cos()
        ctx.save_for_backward(ctx.hidden * 0.5)
        return t.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (half,) = ctx.saved_tensors
        return half


class Dirty(torch.autograd.Function):
    """Works in place."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        t.mul_(2).tanh_()
        ctx.mark_dirty(t)
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (t,) = ctx.saved_tensors
        return g * 2 * (1 - t * t)


@dataclass(frozen=True)
class RandomStep:
    """One random training step; everything follows from the seed."""

    seed: int
    batch: int
    n: int
    only: tuple[str, ...] = ()

    def make(self, batch: int | None = None) -> tuple[nn.Module, tuple[Tensor, ...], Callable[[Any], Tensor]]:
        """Model, inputs and loss; the same ones at every call with one batch size."""
        torch.manual_seed(self.seed)
        net = RandomNet(self.seed, self.n, self.only).train()
        for m in net.layers:
            if isinstance(m, nn.BatchNorm2d) and self.seed % 3 == 0:
                m.eval()
        rng = random.Random(self.seed + 1)
        n = batch or self.batch
        x = torch.randn(n, CHANNELS, SIZE, SIZE, requires_grad=rng.random() < 0.4)
        y = torch.randn(n, CHANNELS, SIZE, SIZE, requires_grad=rng.random() < 0.2)
        return net, (x, y), _loss


def _loss(outputs: list[Tensor]) -> Tensor:
    return sum((t.square().mean() + t.mean() for t in outputs), torch.zeros(()))


def random_step(seed: int, only: tuple[str, ...] = ()) -> RandomStep:
    rng = random.Random(seed)
    return RandomStep(seed, rng.choice([1, 2, 3]), rng.choice([4, 6, 9, 14, 22]), only)
