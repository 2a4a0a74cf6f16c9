"""growth: a step at any batch size, from two traces of it.

Every size in a step is a constant plus a multiple of the batch: storages, FLOPs, traffic. Two traces with the same ops
in the same order tell both, so that steps of other sizes need no trace, and plans of one size are plans of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lowtide.errors import InputError
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Op, Step, Storage

Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]


@dataclass(frozen=True)
class Growth:
    """A step as a function of its size.

    Attributes:
        small, large: the step at the sizes `n_small` < `n_large`.
    """

    small: Step
    n_small: int
    large: Step
    n_large: int

    def __post_init__(self) -> None:
        if not 0 < self.n_small < self.n_large:
            raise InputError(f"a step grows between two sizes, not from {self.n_small} to {self.n_large}")
        if not same_shape(self.small, self.large):
            raise InputError(
                f"the step does other ops at size {self.n_large} than at size {self.n_small}: it cannot be carried on"
            )

    def at(self, n: int) -> Step:
        """The step at size `n`, without costs and workspace."""
        a, b = self.n_small, self.n_large

        def grown(x: int, y: int) -> int:
            return max(0, x + (y - x) * (n - a) // (b - a))

        def op(x: Op, y: Op) -> Op:
            return replace(
                x,
                flops=grown(x.flops, y.flops),
                traffic_bytes=grown(x.traffic_bytes, y.traffic_bytes),
                scratch_bytes=grown(x.scratch_bytes, y.scratch_bytes),
            )

        def storage(x: Storage, y: Storage) -> Storage:
            return replace(x, nbytes=grown(x.nbytes, y.nbytes))

        return replace(
            self.small,
            ops=tuple(map(op, self.small.ops, self.large.ops)),
            storages=tuple(map(storage, self.small.storages, self.large.storages)),
            meta={k: v for k, v in self.small.meta.items() if k != "costs"},
            seconds=(),
            workspace_bytes=(),
        )


def same_shape(a: Step, b: Step) -> bool:
    """Whether two steps are the same but for sizes: a plan of one is a plan of the other."""

    def plain(s: Step) -> tuple[object, ...]:
        ops = [(o.name, o.reads, o.writes, o.inplace, o.moment, o.pinned) for o in s.ops]
        storages = [(x.birth, x.death, x.external) for x in s.storages]
        return s.n_forward, s.moments, s.positions, s.values, s.saves, ops, storages

    return plain(a) == plain(b)


def total_peak_bytes(step: Step, lists: Lists | None) -> int:
    """The peak with everything in, under a plan's lists or without a plan."""
    return simulate(step, lists).total_peak_bytes


def largest(fits: Callable[[int], bool], guess: int, most: int = 1 << 24) -> int:
    """The largest n >= 1 for which `fits(n)`, if it holds up to there and not beyond; 0 if not even for 1. Looks around
    `guess` first; O(log of the distance to it) calls."""
    low, high = 0, most + 1  # fits(low) holds, fits(high) does not
    n, stride = max(1, min(guess, most)), 1
    while high - low > 1:
        if fits(n):
            low = n
            n = min(n + stride, high - 1) if high > most else (low + high) // 2
        else:
            high = n
            n = max(n - stride, low + 1) if low == 0 else (low + high) // 2
        stride *= 2
    return low
