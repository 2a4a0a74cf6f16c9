"""`feng_huang` on chains against all checkpoint sets, on its own objective."""

from __future__ import annotations

import random
from itertools import pairwise

from lowtide.planning.chain import Chain
from lowtide.planning.solve import solve
from tests.random_chains import checkpoint_sets, random_chain


def own_objective(chain: Chain, checkpoints: tuple[int, ...]) -> int:
    """Bytes of all checkpoints and the input, plus what the largest segment stores when it has run."""
    cuts = (0, *checkpoints, chain.n)

    def stored(c: int, j: int) -> int:
        total = 0
        for k in range(c + 1, j + 1):
            is_read = k < j and chain.i[k]
            total += chain.s[k - 1] + (chain.a[k] if chain.o[k - 1] or is_read else 0)
        return total

    return sum(chain.a[c] for c in cuts[:-1]) + max(stored(c, j) for c, j in pairwise(cuts))


def test_least_of_all_sets() -> None:
    rng = random.Random(12)
    for _ in range(1000):
        chain = random_chain(rng, rng.randint(1, 8), rng.choice((1, 3, 8, 100)))
        solution = solve(chain, "feng_huang")
        best = min(own_objective(chain, c) for c in checkpoint_sets(chain.n))
        assert own_objective(chain, solution.checkpoints) == solution.stats["claimed_peak_bytes"] == best
