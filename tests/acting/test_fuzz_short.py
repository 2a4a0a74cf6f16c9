"""A few of the fuzzer's cases. `make fuzz` runs thousands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from benchmarks.fuzz import Tally, run_case


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)


@pytest.mark.parametrize("first", range(0, 72, 6))
def test_random_steps_under_random_plans(first: int) -> None:
    tally = Tally()
    for seed in range(first, first + 6):
        run_case(seed, tally)
    assert tally.failures == []
    assert tally.recomputed > 0
    assert tally.cases == 6


def test_the_fuzzer_sees_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tape that hands out something else is found out."""
    from lowtide.acting.record import Ref

    original = Ref.on

    def off(self: Ref, base: Tensor) -> Tensor:
        t = original(self, base)
        return t * 1.0009765625 if t.is_floating_point() else t

    monkeypatch.setattr(Ref, "on", off)
    tally = Tally()
    for seed in range(6):
        run_case(seed, tally)
    assert any("grad" in f for f in tally.failures)
