from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.errors import InputError
from lowtide.planning.growth import Growth, largest, total_peak_bytes
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.frontier import frontier
from tests.random_steps import residual_net


def test_a_grown_step_is_the_step_of_that_size() -> None:
    growth = Growth(residual_net(3, 100), 1, residual_net(3, 200), 2)
    assert growth.at(7) == residual_net(3, 700)
    assert growth.at(1) == growth.small


def test_what_does_not_grow_stays() -> None:
    small, large = residual_net(2, 100), residual_net(2, 200)
    fixed = replace(
        large, storages=tuple(s if s.external else x for s, x in zip(small.storages, large.storages, strict=True))
    )
    growth = Growth(small, 1, fixed, 2)
    assert growth.at(50).standing_bytes == small.standing_bytes
    assert total_peak_bytes(growth.at(50), None) > total_peak_bytes(growth.at(49), None)


def test_plans_of_one_size_are_plans_of_all() -> None:
    growth = Growth(residual_net(4, 100), 1, residual_net(4, 200), 2)
    keep, runs = frontier(growth.at(3))
    assert simulate(growth.at(30), (keep, runs)).peak_bytes == pytest.approx(
        10 * simulate(growth.at(3), (keep, runs)).peak_bytes, rel=0.02
    )


def test_steps_of_other_ops_do_not_grow() -> None:
    with pytest.raises(InputError, match="does other ops at size 2 than at size 1"):
        Growth(residual_net(2), 1, residual_net(3), 2)
    with pytest.raises(InputError, match="between two sizes, not from 2 to 2"):
        Growth(residual_net(2), 2, residual_net(2), 2)


@pytest.mark.parametrize("answer", [0, 1, 2, 7, 100, 12345, 1 << 24])
@pytest.mark.parametrize("guess", [1, 50, 12345, 1 << 24])
def test_largest(answer: int, guess: int) -> None:
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= answer

    assert largest(fits, guess) == answer
    assert len(asked) == len(set(asked)) <= 60
    assert min(asked) >= 1
