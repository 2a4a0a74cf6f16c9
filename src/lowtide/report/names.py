"""Ops and moments by short names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowtide.planning.simulate import describe_moment

if TYPE_CHECKING:
    from lowtide.planning.step import Step


def short_op(name: str) -> str:
    """`'aten.convolution.default' -> 'convolution'`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 2 else name


def short_place(where: str) -> str:
    """`'backward of bn1 (aten.native_batch_norm.default)' -> 'backward of bn1 (native_batch_norm)'`."""
    head, _, op = where.rpartition(" (")
    return f"{head} ({short_op(op[:-1])})" if head else where


def place(step: Step, moment: int) -> str:
    """Where a moment is: `'backward of layer1.0.bn2 (native_batch_norm)'`."""
    return short_place(describe_moment(step, moment))
