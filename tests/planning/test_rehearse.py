"""The judge of schedules: what it counts, and what it refuses."""

from __future__ import annotations

import pytest

from lowtide.errors import PlanError
from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import Action, Move, moves_of, rehearse

TWO = Chain.from_arrays(a=[1, 10, 100], s=[1000, 10_000], t=[100_000, 0], forward=[2, 3])


def moves(text: str) -> list[Move]:
    """`'run 1, hold 1'` as moves."""
    return [Move(Action(word.split()[0]), int(word.split()[1])) for word in text.split(", ")]


def test_plain_step() -> None:
    played = rehearse(TWO, moves("record 1, record 2, backward 2, backward 1"))
    # during the backward of stage 1: its input, what it saved, its transient
    assert (played.peak_bytes, played.peak_stage) == (1 + 1000 + 100_000, 1)
    assert (played.forward_cost, played.recompute_cost, played.runs) == (5, 0, (1, 1))


def test_recomputed_step() -> None:
    played = rehearse(TWO, moves("run 1, hold 1, record 2, backward 2, drop 1, take 0, record 1, backward 1"))
    assert played.peak_bytes == 1 + 1000 + 100_000
    assert (played.recompute_cost, played.runs) == (2, (2, 1))
    assert moves_of(TWO, [1]) == moves(
        "run 1, hold 1, take 1, record 2, backward 2, drop 1, take 0, record 1, backward 1"
    )


def test_one_storage_is_counted_once() -> None:
    chain = Chain.from_arrays(a=[0, 10, 0], i=[0, 1], o=[1, 0])
    shared = rehearse(chain, moves("record 1, hold 1, record 2, backward 2, drop 1, backward 1"))
    assert shared.peak_bytes == 10
    # stage 1 is recorded again: its output is another storage than the one that is still held
    twice = rehearse(chain, moves("run 1, hold 1, record 2, backward 2, take 0, record 1, backward 1"))
    assert twice.peak_bytes == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run 2", r"move 0 \(run 2\) cannot be made: it wants activation 1, and 0 is in hand"),
        ("run 1, run 2, run 3", "the chain has stages 1 to 2"),
        ("hold 1", "activation 0 is in hand"),
        ("run 1, hold 1, hold 1", "held already"),
        ("take 1", "not held"),
        ("drop 1", "not held"),
        ("drop 0", "the model's input"),
        ("record 1, backward 1", "the backward of stage 2 is next"),
        ("run 1, run 2, backward 2", "not recorded"),
        ("record 1, record 2, backward 2, take 0, record 1", "recorded already"),
        ("record 1, record 2, backward 2, backward 1, take 0, record 1", "its backward is over"),
        ("record 1, record 2, backward 2", "ends before the backward of stage 1"),
        ("run 1", "ends before the backward of stage 2"),
    ],
)
def test_impossible_schedules_are_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        rehearse(TWO, moves(text))
