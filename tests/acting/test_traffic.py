from __future__ import annotations

from typing import Any

import pytest
import torch

from lowtide.acting.ops import op_info
from lowtide.acting.trace import trace
from lowtide.acting.traffic import compute_dtype, touched_bytes, traffic_bytes

aten = torch.ops.aten


def moved(func: Any, *args: Any, **kwargs: Any) -> int:
    return traffic_bytes(op_info(func), args, kwargs, func(*args, **kwargs))


def test_reads_and_writes_count() -> None:
    a, b = torch.ones(10), torch.ones(10)
    assert moved(aten.add.Tensor, a, b) == 3 * 40
    assert moved(aten.add_.Tensor, a, b) == 3 * 40
    assert moved(aten.cat.default, [a, b]) == 4 * 40
    assert moved(aten.relu_.default, a) == 2 * 40


def test_what_is_overwritten_is_not_read() -> None:
    assert moved(aten.zero_.default, torch.ones(10)) == 40
    assert moved(aten.copy_.default, torch.ones(10), torch.ones(10)) == 80
    assert moved(aten.empty.memory_format, [100]) == 0


def test_expanded_tensors_and_lookups_touch_what_they_touch() -> None:
    assert touched_bytes(torch.ones(1).expand(1000)) == 4
    assert touched_bytes(torch.ones(1000)[:10]) == 40
    ids = torch.zeros(3, dtype=torch.int64)
    assert moved(aten.embedding.default, torch.ones(1000, 8), ids) == 2 * 3 * 8 * 4 + 3 * 8


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((torch.ones(2, dtype=torch.float16), torch.ones(2)), "float16"),
        ((torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float64)), "float64"),
        ((torch.ones(2, dtype=torch.int64),), ""),
    ],
)
def test_the_type_is_the_first_floating_one(args: tuple[Any, ...], expected: str) -> None:
    assert compute_dtype(args, {}, None) == expected


def test_traces_tell_both() -> None:
    model = torch.nn.Linear(8, 8).to(torch.bfloat16)
    step = trace(model, (torch.ones(4, 8, dtype=torch.bfloat16),))
    matmul = next(op for op in step.ops if "addmm" in op.name)
    assert matmul.dtype == "bfloat16"
    assert matmul.traffic_bytes == 2 * (4 * 8 + 8 * 8 + 8 + 4 * 8)
