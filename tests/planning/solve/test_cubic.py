"""`cubic` against all checkpoint sets, on the first objective."""

from __future__ import annotations

import random

from hypothesis import given

from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import rehearse_checkpoints
from lowtide.planning.solve import solve
from tests.random_chains import chains, checkpoint_sets, random_chain


def check(chain: Chain) -> None:
    best = min(chain.first_peak_bytes(c) for c in checkpoint_sets(chain.n))
    solution = solve(chain, "cubic")
    assert solution.stats["claimed_peak_bytes"] == best
    assert rehearse_checkpoints(chain, solution.checkpoints, revised=False).peak_bytes == best


@given(chains(longest=9))
def test_least_of_all_sets(chain: Chain) -> None:
    check(chain)


def test_two_thousand_chains() -> None:
    rng = random.Random(33)
    for _ in range(2000):
        check(random_chain(rng, rng.randint(1, 8), rng.choice((1, 3, 8, 100))))


def test_the_first_objective_can_cost_peak() -> None:
    rng = random.Random(6000)
    worse = 0
    for _ in range(300):
        chain = random_chain(rng, 8)
        first, revised = solve(chain, "cubic").peak_bytes, solve(chain, "linear").peak_bytes
        assert first >= revised
        worse += first > revised
    assert worse > 50
