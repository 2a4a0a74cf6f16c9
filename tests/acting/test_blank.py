"""A shape is enough for the backward of pools and of padding, whatever the memory format."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lowtide.acting.blank import blank
from lowtide.acting.meter import StorageMeter

aten: Any = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
FORMATS = [(4, torch.contiguous_format), (4, torch.channels_last), (5, torch.contiguous_format),
           (5, torch.channels_last_3d), (3, torch.contiguous_format)]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("dims", "form"), FORMATS)
@pytest.mark.parametrize("kind", ["plain", "adaptive"])
def test_pools_go_backward_on_it(dims: int, form: torch.memory_format, kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn([3, 4, 9, 7, 6][:dims]).to(dtype).contiguous(memory_format=form)
    x[(0,) * dims] = float("nan")
    n = 3 if dims == 5 else 2
    if kind == "adaptive":
        forward, rest = getattr(aten, f"adaptive_max_pool{n}d"), ([2] * n,)
        backward, more = getattr(aten, f"adaptive_max_pool{n}d_backward"), ()
    else:
        forward, rest = getattr(aten, f"max_pool{n}d_with_indices"), ([3] * n, [2] * n, [1] * n)
        backward, more = getattr(aten, f"max_pool{n}d_with_indices_backward"), (*rest, [1] * n, False)
    out, indices = forward(x, *rest)
    g = torch.randn_like(out)
    want = backward(g, x, *more, indices)
    got = backward(g, blank(x.shape, x.stride(), x.dtype, x.device), *more, indices)
    assert torch.equal(got, want)
    assert got.stride() == want.stride()


PADS = [f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("name", "args", "more"),
    [
        ("avg_pool2d", ([3, 3], [2, 2], [1, 1], False, True, None), None),
        ("avg_pool3d", ([3, 3, 3], [2, 2, 2], [1, 1, 1], False, True, None), None),
        ("_adaptive_avg_pool2d", ([3, 2],), ()),
        ("_adaptive_avg_pool3d", ([3, 2, 2],), ()),
        *((name, ([1] * (2 * int(name[-2])),), None) for name in PADS),
    ],
)
def test_other_pools_and_pads_do(
    name: str, args: tuple[Any, ...], more: tuple[Any, ...] | None, form: torch.memory_format, dtype: torch.dtype
) -> None:
    n = int(name[-2])
    if form is torch.channels_last and n != 2:
        pytest.skip("a format of images")
    x = torch.randn([3, 4, 9, 7, 6][: n + 2]).to(dtype).contiguous(memory_format=form)
    out = getattr(aten, name)(x, *args)
    backward, rest = getattr(aten, f"{name}_backward"), args if more is None else more
    g = torch.randn_like(out)
    want = backward(g, x, *rest)
    got = backward(g, blank(x.shape, x.stride(), x.dtype, x.device), *rest)
    assert torch.equal(got, want)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_takes_no_memory(device: str) -> None:
    with StorageMeter() as meter:
        t = blank((64, 1024, 1024), (1024 * 1024, 1024, 1), torch.float32, torch.device(device))
        t[0, 0, :3].sum()
    assert meter.peak_bytes == 4  # the sum
    assert t.shape == (64, 1024, 1024)


@pytest.mark.parametrize("size", [(0, 3), (), (1,)])
def test_odd_shapes(size: tuple[int, ...]) -> None:
    want = torch.empty(size)
    t = blank(want.shape, want.stride(), want.dtype, want.device)
    assert (t.shape, t.stride()) == (want.shape, want.stride())
