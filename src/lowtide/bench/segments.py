"""A checkpoint set on an `nn.Sequential`, run by `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from lowtide.planning.chain import Chain
from lowtide.planning.step import Step


def stage_of(path: str) -> str | None:
    """The stage of an `nn.Sequential` that a module belongs to; None for the loss. A grouping for `lowtide.reduce`."""
    return path.split(".")[0] or None


def cuts_of(step: Step, chain: Chain, checkpoints: Iterable[int]) -> list[int]:
    """Checkpoints on the chain of an `nn.Sequential`'s step as indices of its stages: a segment begins at each."""
    return [int(stage_of(step.ops[chain.ops[c - 1][1]].module) or 0) for c in checkpoints]


def checkpointed(stages: nn.Sequential, cuts: Iterable[int]) -> Callable[[Tensor], Tensor]:
    """A forward that runs the stages up to the last cut in segments under `torch.utils.checkpoint` (not reentrant), and
    the rest plainly."""
    edges = [0, *cuts]
    segments = [nn.Sequential(*list(stages)[a:b]) for a, b in pairwise(edges)]
    rest = nn.Sequential(*list(stages)[edges[-1] :])

    def forward(x: Tensor) -> Tensor:
        for segment in segments:
            x = checkpoint(segment, x, use_reentrant=False)
        return rest(x)

    return forward


@contextmanager
def leading_inplace_off(stages: nn.Sequential, cuts: Iterable[int]) -> Generator[None]:
    """In-place activations that begin a segment would overwrite what the checkpoint before them keeps. PyTorch raises
    then; here they make a tensor of their own meanwhile."""
    first: list[Any] = [stages[c] for c in cuts if getattr(stages[c], "inplace", False)]
    for m in first:
        m.inplace = False
    try:
        yield
    finally:
        for m in first:
            m.inplace = True
