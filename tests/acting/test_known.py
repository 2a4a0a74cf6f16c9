"""A fake step takes the path that the real one takes where it looks at what it made itself."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from lowtide.acting.known import KnownValues


def test_what_follows_from_constants_can_be_looked_at() -> None:
    with FakeTensorMode(), KnownValues():
        positions = torch.arange(8).unsqueeze(0)
        assert bool((positions.diff() == 1).all())
        mask = torch.ones(4, 4).tril().bool()
        assert int(mask.sum()) == 10
        positions += 1
        assert positions[0, -1].item() == 8
        positions[:, 2:] = 5  # through a view
        assert positions.sum().item() == 1 + 2 + 6 * 5


@pytest.mark.parametrize("spoil", ["write", "random", "empty", "large"])
def test_what_does_not_is_refused(spoil: str) -> None:
    mode = FakeTensorMode()
    unknown = mode.from_tensor(torch.ones(8))
    with mode, KnownValues():
        t = torch.zeros(8)
        view = t[:4]
        if spoil == "write":
            t.add_(unknown)
        elif spoil == "random":
            view = torch.rand(8)
        elif spoil == "empty":
            view = torch.empty(8)
        else:
            view = torch.zeros(1 << 23)
        with pytest.raises(DataDependentOutputException):
            view.sum().item()
