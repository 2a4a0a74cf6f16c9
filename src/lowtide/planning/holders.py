"""holders: which module each byte of one moment belongs to."""

from __future__ import annotations

from lowtide.planning.blocks import history
from lowtide.planning.simulate import Timeline
from lowtide.planning.step import Category, Step

OPTIMIZER = "(optimizer)"


def by_module(timeline: Timeline, moment: int) -> dict[str, int]:
    """Bytes per module at the highest point of a moment; they add up to `level_bytes[moment]` plus `standing_bytes`.

    What was made in the step belongs to the module whose op made it, in backward to the one whose gradient was being
    computed; what stood before it, to the first module that reads it. '' is the model or the loss itself; state of
    the optimizer is `OPTIMIZER`.
    """
    step = timeline.step
    total: dict[str, int] = {}

    def add(module: str, nbytes: int) -> None:
        if nbytes:
            total[module] = total.get(module, 0) + nbytes

    readers = _first_readers(step)
    blocks = history(step, timeline.keep, timeline.runs)
    for i in blocks.alive(blocks.highest(moment)):
        block = blocks.blocks[i]
        if block.op >= 0:
            add(step.ops[block.op].module, block.nbytes)
        elif step.storages[block.storage].category is Category.OPTIMIZER:
            add(OPTIMIZER, block.nbytes)
        else:
            add(readers.get(block.storage, ""), block.nbytes)
    return dict(sorted(total.items(), key=lambda kv: -kv[1]))


def _first_readers(step: Step) -> dict[int, str]:
    """Storage -> module of the first op that reads it."""
    found: dict[int, str] = {}
    for op in step.ops:
        for v in op.reads:
            found.setdefault(step.values[v].storage, op.module)
    return found
