"""A predicted timeline as a memory snapshot of PyTorch: what `torch.cuda._memory_viz` and the memory_viz page read.

The events are those of `history`, block by block; addresses are laid out by a simple allocator that knows no rounding,
so that the viewer's highest level is the predicted peak, to the byte.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from lowtide.planning.blocks import Block, History, history
from lowtide.planning.compress import uncompressed

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Step

START = 0x7F0000000000  # where the only segment begins; 0 would read as no address


class _Space:
    """First fit in a space without an end. Free gaps are (address, size), by address."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.end = START

    def take(self, nbytes: int) -> int:
        for k, (address, size) in enumerate(self.gaps):
            if size >= nbytes:
                del self.gaps[k]
                if size > nbytes:
                    self.gaps.insert(k, (address + nbytes, size - nbytes))
                return address
        address, self.end = self.end, self.end + nbytes
        return address

    def give(self, address: int, nbytes: int) -> None:
        k = bisect_left(self.gaps, (address, 0))
        if k < len(self.gaps) and self.gaps[k][0] == address + nbytes:
            nbytes += self.gaps.pop(k)[1]
        if k and sum(self.gaps[k - 1]) == address:
            before, size = self.gaps.pop(k - 1)
            address, nbytes = before, size + nbytes
        insort(self.gaps, (address, nbytes))


def snapshot(plan: Plan, *, baseline: bool = False) -> dict[str, Any]:
    """The step under the plan, or without it, as a snapshot.

    `segments` holds one segment with the blocks that are there after the step; `device_traces` one list of
    allocations and frees. What stood before the step has no allocation, so that the viewer counts it from the start.
    The stack of a block is the op that wrote it, within its modules from the inside out. `time_us` counts microseconds
    of the step's costs, or moments if it has none.
    """
    step = plan.step
    past = history(uncompressed(step)) if baseline else history(step, plan.keep, plan.runs)
    space = _Space()
    address = {b: space.take(past.blocks[b].nbytes) for b in past.standing}
    clock = _clock(step)
    stack = _Stacks(step)
    trace: list[dict[str, Any]] = []
    for turn in past.turns:
        block = past.blocks[turn.block]
        if turn.is_alloc:
            address[turn.block] = space.take(block.nbytes)
        where = address[turn.block] if turn.is_alloc else address.pop(turn.block)
        actions = ("alloc",) if turn.is_alloc else ("free_requested", "free_completed")
        for action in actions:
            trace.append(
                {
                    "action": action,
                    "addr": where,
                    "size": block.nbytes,
                    "stream": 0,
                    "time_us": clock[turn.moment],
                    "frames": stack.of(block),
                    "category": block.kind.value,
                }
            )
        if not turn.is_alloc:
            space.give(where, block.nbytes)
    return {"segments": [_segment(past, address, space, stack)], "device_traces": [trace], "external_annotations": []}


def _clock(step: Step) -> list[int]:
    """Microseconds since the start of the step, per moment and for its end."""
    clock, now = [0], 0.0
    for m, what in enumerate(step.moments):
        now += 1e6 * step.seconds[what] if step.seconds and what >= 0 else 0.0
        clock.append(round(now) if step.seconds else m + 1)
    return clock


def _segment(past: History, address: dict[int, int], space: _Space, stack: _Stacks) -> dict[str, Any]:
    """All of the space, with what is in it now."""
    size = space.end - START
    rows: list[dict[str, Any]] = []
    used = sorted((where, b) for b, where in address.items())
    at = START
    for where, b in [*used, (space.end, -1)]:
        if where > at:
            rows.append(_block(at, where - at, "inactive", []))
        if b >= 0:
            at = where + past.blocks[b].nbytes
            rows.append(_block(where, past.blocks[b].nbytes, "active_allocated", stack.of(past.blocks[b])))
    allocated = sum(past.blocks[b].nbytes for b in address)
    return {
        "device": 0,
        "address": START,
        "total_size": size,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": allocated,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": rows,
    }


def _block(address: int, size: int, state: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}


class _Stacks:
    """The stacks of blocks, each made once: the viewer's files share what is the same."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.known: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def of(self, block: Block) -> list[dict[str, Any]]:
        kind = block.kind.value if block.storage >= 0 else f"workspace, {block.kind.value}"
        return self.known.setdefault((block.op, kind), self._make(block.op, kind))

    def _make(self, op: int, kind: str) -> list[dict[str, Any]]:
        if op < 0:
            return [_frame(kind, "there before the step", 0)]
        o = self.step.ops[op]
        parts = o.module.split(".") if o.module else []
        paths = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
        inner = [_frame(o.name, kind, op), *(_frame("forward", path, op) for path in paths)]
        return [
            *inner,
            _frame(o.phase.value, str(self.step.meta.get("name") or self.step.meta.get("model") or "step"), op),
        ]


def _frame(name: str, filename: str, line: int) -> dict[str, Any]:
    return {"name": name, "filename": filename, "line": line}
