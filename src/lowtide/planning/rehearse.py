"""The judge of chain plans: plays a schedule event by event and counts what is stored. Knows no solver, no formula.

A schedule is a row of moves. One activation at a time is *in hand*: the output of the stage that ran last. In hand it
costs nothing (as in the literature, the running forward is not charged); what is charged is what is stored: activations
that are held, and what recorded stages saved. Storages are counted once, however many want them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from lowtide.errors import PlanError
from lowtide.planning.chain import Chain


class Action(str, Enum):
    """What a move does; `k` is its stage or activation."""

    RUN = "run"  # run stage k on the activation in hand, saving nothing
    RECORD = "record"  # run stage k on the activation in hand, saving what its backward wants
    HOLD = "hold"  # store activation k, which is in hand
    TAKE = "take"  # take activation k, which is held, in hand
    DROP = "drop"  # hold activation k no longer
    BACKWARD = "backward"  # run stage k backward; what it saved is let go of afterwards


class Move(NamedTuple):
    action: Action
    k: int

    def __repr__(self) -> str:
        return f"{self.action.value} {self.k}"


@dataclass(frozen=True)
class Rehearsal:
    """What a schedule came to.

    Attributes:
        peak_bytes: most bytes at any event.
        peak_stage: the stage whose backward it was, or 0 if the peak was in between.
        forward_cost: cost of all forward runs, the first ones included, in the chain's unit.
        recompute_cost: `forward_cost` less one plain forward.
        runs: per stage 1..n (index k-1) how often it ran forward.
    """

    peak_bytes: int
    peak_stage: int
    forward_cost: float
    recompute_cost: float
    runs: tuple[int, ...]


class _Storage:
    """One block of memory. Identity matters: a recomputed activation is another storage than a held one."""

    __slots__ = ("nbytes", "users")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.users = 0


class _Player:
    """The state between two moves; one method per action."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.nbytes = 0
        self.peak, self.peak_stage = 0, 0
        self.runs = [0] * chain.n
        self.next_backward = chain.n
        self.recorded: dict[int, list[_Storage]] = {}
        self.held: dict[int, _Storage] = {0: self._acquire(_Storage(chain.a[0]))}
        self.hand, self.in_hand = 0, self.held[0]

    def run(self, k: int) -> None:
        _require(1 <= k <= self.chain.n, f"the chain has stages 1 to {self.chain.n}")
        _require(self.hand == k - 1, f"it wants activation {k - 1}, and {self.hand} is in hand")
        self.runs[k - 1] += 1
        self.hand, self.in_hand = k, _Storage(self.chain.a[k])

    def record(self, k: int) -> None:
        _require(k not in self.recorded, "the stage is recorded already")
        _require(k <= self.next_backward, "its backward is over")
        read = self.in_hand
        self.run(k)
        wanted = [_Storage(self.chain.s[k - 1])]
        wanted += [read] if self.chain.i[k - 1] else []
        wanted += [self.in_hand] if self.chain.o[k - 1] else []
        self.recorded[k] = [self._acquire(x) for x in wanted]

    def hold(self, k: int) -> None:
        _require(self.hand == k, f"activation {self.hand} is in hand")
        _require(k not in self.held, "it is held already")
        self.held[k] = self._acquire(self.in_hand)

    def take(self, k: int) -> None:
        _require(k in self.held, "it is not held")
        self.hand, self.in_hand = k, self.held[k]

    def drop(self, k: int) -> None:
        _require(k in self.held and k > 0, "it is not held, or it is the model's input")
        self._release(self.held.pop(k))

    def backward(self, k: int) -> None:
        _require(k == self.next_backward, f"the backward of stage {self.next_backward} is next")
        _require(k in self.recorded, "the stage is not recorded")
        self._see(self.nbytes + self.chain.t[k - 1], k)
        for storage in self.recorded.pop(k):
            self._release(storage)
        self.next_backward -= 1

    def _acquire(self, storage: _Storage) -> _Storage:
        if storage.users == 0:
            self.nbytes += storage.nbytes
            self._see(self.nbytes, 0)
        storage.users += 1
        return storage

    def _release(self, storage: _Storage) -> None:
        storage.users -= 1
        if storage.users == 0:
            self.nbytes -= storage.nbytes

    def _see(self, nbytes: int, stage: int) -> None:
        if nbytes > self.peak:
            self.peak, self.peak_stage = nbytes, stage


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise PlanError(reason)


def rehearse(chain: Chain, moves: Iterable[Move]) -> Rehearsal:
    """Play `moves` on `chain`. The model's input is held from beginning to end. O(number of moves).

    Raises:
        PlanError: at the first move that cannot be made, or if the backward of some stage is missing.
    """
    player = _Player(chain)
    for at, (action, k) in enumerate(moves):
        try:
            getattr(player, action.value)(k)
        except PlanError as e:
            raise PlanError(f"move {at} ({action.value} {k}) cannot be made: {e}") from None
    if player.next_backward > 0:
        raise PlanError(f"the schedule ends before the backward of stage {player.next_backward}")
    cost = sum(r * f for r, f in zip(player.runs, chain.forward, strict=True))
    return Rehearsal(player.peak, player.peak_stage, cost, cost - sum(chain.forward), tuple(player.runs))


def moves_of(chain: Chain, checkpoints: Sequence[int]) -> list[Move]:
    """The schedule of a checkpoint set under the revised objective: forward holds the checkpoints and records the last
    segment; then, segment by segment from the end, record, run backward, drop the checkpoint it started from."""
    cuts = (0, *chain.check_checkpoints(checkpoints), chain.n)
    moves: list[Move] = []
    for c, j in pairwise(cuts[:-1]):
        moves += [Move(Action.RUN, k) for k in range(c + 1, j + 1)]
        moves.append(Move(Action.HOLD, j))
    for c, j in zip(cuts[-2::-1], cuts[:0:-1], strict=True):
        moves.append(Move(Action.TAKE, c))
        moves += [Move(Action.RECORD, k) for k in range(c + 1, j + 1)]
        moves += [Move(Action.BACKWARD, k) for k in range(j, c, -1)]
        moves += [Move(Action.DROP, c)] if c > 0 else []
    return moves


def rehearse_checkpoints(chain: Chain, checkpoints: Sequence[int], *, revised: bool = True) -> Rehearsal:
    """Play a checkpoint set.

    `revised=True`: a checkpoint is freed with the segment that started from it (the thesis' revised objective, and what
    PyTorch does). `revised=False`: the first objective, as if every checkpoint stayed to the end of the step and
    nothing else did.

    Raises:
        InputError: if a checkpoint is not between 1 and n-1.
    """
    moves = moves_of(chain, checkpoints)
    if revised:
        return rehearse(chain, moves)
    return rehearse(chain, [m for m in moves if m.action is not Action.DROP])
