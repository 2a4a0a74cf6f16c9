"""Following a live op stream along a plan's table, and finding back where the two part.

Streams part for harmless reasons (fake and real tensors take other ways through a composite op; a cache is filled in
the first step only), and because the step is another one. What is followed is a guess about which live op is which op
of the plan, and nothing else: whatever the guess, the tape drops only what its own records can rebuild.
"""

from __future__ import annotations

import warnings
import weakref

from torch._ops import OpOverload

from lowtide.acting.ops import OpInfo, op_info
from lowtide.acting.table import Entry, Table

_ASIDE = 24  # how many copies and allocations in a row may be missing: streams differ in those now and then
_ALIKE = 3  # so many ops in a row must be as in the plan to go on from there
_WINDOW = 64  # how many ops of the plan may be missing
_PATIENCE = 512  # how many live ops may be in the place of others
_UNNOTICED = 8  # so many ops more or less, and one in sixteen, are not worth a warning


class Stream:
    """Where a live forward pass is on its plan.

    Attributes:
        cursor: the first op of the plan that has not been met.
        over: the last one has been met.
        parted: so much of the plan was not met that it is worth a warning.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.entries = table.entries
        self.cursor = 0
        self.over = not self.entries
        self.parted = False
        self._lost: tuple[Entry, str] | None = None  # where the streams parted: what was expected, what came
        self._recent: list[OpOverload] = []
        self._unmet = 0
        self._gaps = 0

    def next(self, func: OpOverload, info: OpInfo) -> Entry | None:
        """The plan's entry for this live op, or None if it is not in the plan."""
        cursor = self.cursor
        entries = self.entries
        if cursor >= len(entries):
            return None
        if entries[cursor].func is not func or self._lost is not None:
            found = self._found_again(func) if self._lost is not None else self._step_aside(func, info)
            if found < 0:
                return None
            cursor = found
        self.cursor = cursor + 1
        self.over = self.cursor == len(entries)
        return entries[cursor]

    def lose(self, expected: Entry, got: str) -> None:
        """The live op is not the expected one after all."""
        self._lost = (expected, got)
        self._recent.clear()
        self._unmet = 1

    def close(self) -> None:
        """Forward is over."""
        if self._lost is not None:
            self._part(*self._lost)

    def _step_aside(self, func: OpOverload, info: OpInfo) -> int:
        """Where to go on, stepping over copies and allocations that only one of the two streams makes. -1: here is
        nothing like it."""
        entries = self.entries
        for ahead in range(self.cursor, min(self.cursor + _ASIDE, len(entries))):
            expected = entries[ahead].func
            if expected is func:
                return ahead
            if expected is None or not _is_aside(op_info(expected)):
                break
        if not _is_aside(info):
            self.lose(entries[self.cursor], info.name)
            self._recent.append(func)
        return -1

    def _found_again(self, func: OpOverload) -> int:
        """Where to go on, if the last few live ops stand in the plan, too; -1 if they do not."""
        entries, anchor, recent = self.entries, self.cursor, self._recent
        self._unmet += 1
        recent.append(func)
        del recent[:-_ALIKE]
        if entries[anchor].func is func:  # there were only more live ops
            return self._go_on(anchor)
        if len(recent) == _ALIKE:
            for at in range(anchor + _ALIKE - 1, min(anchor + self._unmet + _WINDOW, len(entries))):
                if entries[at].func is func and all(entries[at - k].func is recent[-1 - k] for k in range(1, _ALIKE)):
                    return self._go_on(at)
        if self._unmet > _PATIENCE:
            self.cursor = len(entries)
        return -1

    def _go_on(self, at: int) -> int:
        assert self._lost is not None
        self._gaps += max(self._unmet, at - self.cursor)
        if self._gaps > _UNNOTICED + len(self.entries) // 16:
            self._part(*self._lost)
        self._lost = None
        return at

    def _part(self, expected: Entry, got: str) -> None:
        self.parted = True
        _warn_parted(self.table, expected, got)


def _is_aside(info: OpInfo) -> bool:
    return info.copy or info.undefined


_warned: weakref.WeakSet[Table] = weakref.WeakSet()


def _warn_parted(table: Table, expected: Entry, got: str) -> None:
    """Once per plan."""
    if table in _warned:
        return
    _warned.add(table)
    warnings.warn(
        f"this step leaves its plan in {expected.module or 'the model'}: the plan has {expected.name} there, the step "
        f"runs {got}. Gradients are right, but what is not in the plan is kept in memory; plan again for this step.",
        stacklevel=2,
    )
