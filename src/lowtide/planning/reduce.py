"""reduce and lift: a traced `Step` as a `Chain`, and a plan of the chain as a plan of the step.

A boundary between two stages is a position between two forward ops where the step can be cut, and the activation there
is the whole frontier: all values made before it that something at or after it wants. So every step is a chain; how good
a one depends on how narrow its frontiers are. Values that every plan keeps are no part of the chain, but of its
transients.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from lowtide.errors import InputError
from lowtide.planning.chain import Chain, Stage
from lowtide.planning.frontiers import Fact, Frontiers
from lowtide.planning.rehearse import Action, Move
from lowtide.planning.step import Step

Grouping = Callable[[str], Hashable]
Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]

GRANULARITIES = ("op", "module", "block")


def reduce(step: Step, granularity: str | Grouping = "op") -> Chain:
    """The chain of a step. Costs are FLOPs; sizes are bytes above what was allocated when the step began, so that the
    chain's peaks compare with the step's. The input is standing memory and counts 0.

    Args:
        granularity: where boundaries may be: `'op'` at every op, `'module'` where another (leaf) module begins,
            `'block'` where another block begins (`layer1.0`, `transformer.h.3`), or a function from module paths to any
            key: a boundary is where the key changes, and ops with key None belong to the stage before.

    Boundaries where the step cannot be cut (a value that is overwritten in place later on would have to be kept) are
    left out. What the chain cannot say: peaks in forward, what recomputation needs besides what it stores, natural
    lives of values that something else holds. `simulate` counts these when the plan is lifted.

    Raises:
        InputError: if the granularity is unknown, or the step has no forward op.
    """
    if step.n_forward == 0:
        raise InputError("this step has no forward op that writes memory: there is nothing to plan")
    fronts = Frontiers(step)
    edges = [0, *(p for p in _boundaries(step, granularity) if fronts.allowed[p]), step.n_forward]
    return _Reduction(fronts, edges).chain()


def lift(step: Step, chain: Chain, plan: Iterable[int] | Sequence[Move]) -> Lists:
    """A plan of `chain`, which `reduce` made of `step`, as the step's lists (keep, runs).

    Args:
        plan: checkpoints, or a schedule.

    Raises:
        InputError: if the chain was not reduced from a step of that length, or a checkpoint is not one of the chain's.
    """
    if not chain.ops or chain.ops[-1][1] != step.n_forward:
        raise InputError(
            f"this chain of {chain.n} stages was not reduced from this step: its stages do not name the step's "
            f"{step.n_forward} forward ops"
        )
    moves = [m for m in plan if isinstance(m, Move)]
    if moves:
        return _lift_schedule(Frontiers(step), chain, moves)
    checkpoints = chain.check_checkpoints(c for c in plan if not isinstance(c, Move))
    return Frontiers(step).lift(chain.ops[c - 1][1] for c in checkpoints)


def block_of(path: str) -> str | None:
    """The block that a module belongs to: up to the last of the first run of numbers in its path (`layer1.0`,
    `features.1.0`), else its parent, else itself. What the model itself runs is None, part of the block before."""
    parts = path.split(".")
    for k, part in enumerate(parts):
        if part.isdigit() and (k + 1 == len(parts) or not parts[k + 1].isdigit()):
            return ".".join(parts[: k + 1])
    return ".".join(parts[:-1]) or path or None


def _boundaries(step: Step, granularity: str | Grouping) -> list[int]:
    """The positions 0 < p < n that the granularity allows."""
    if granularity == "op":
        return list(range(1, step.n_forward))
    if granularity == "module":
        return _changes(step, lambda path: path)
    if granularity == "block":
        return _changes(step, block_of)
    if callable(granularity):
        return _changes(step, granularity)
    names = ", ".join(GRANULARITIES)
    raise InputError(
        f"there is no granularity {granularity!r}: choose from {names}, or give a function of module paths"
    )


def _changes(step: Step, key: Grouping) -> list[int]:
    out: list[int] = []
    current: Hashable = None
    for p, op in enumerate(step.ops[: step.n_forward]):
        new = key(op.module)
        if new is not None and new != current:
            out += [p] if p > 0 and current is not None else []
            current = new
    return out


class _Reduction:
    """The columns of the chain with these edges (op indices, 0 and n included)."""

    def __init__(self, fronts: Frontiers, edges: list[int]) -> None:
        self.fronts, self.step, self.edges = fronts, fronts.step, edges
        self.stage_of = [0] * fronts.n  # forward op -> stage, 1..
        for k, (start, stop) in enumerate(pairwise(edges), 1):
            self.stage_of[start:stop] = [k] * (stop - start)
        self.facts = [f for f in fronts.facts.values() if not f.always and not f.free]
        self.first_backward = fronts.begin
        self.before = fronts.before

    def chain(self) -> Chain:
        n = len(self.edges) - 1
        a, s, i, o = [0] * (n + 1), [0] * (n + 1), [False] * (n + 2), [False] * (n + 1)
        made: list[list[Fact]] = [[] for _ in range(n + 1)]
        width = [0] * (n + 1)  # values in the frontier after stage k
        for f in self.facts:
            k = self.stage_of[f.born]
            made[k].append(f)
            last = self._stage_at(f.last)
            for q in range(k, last):
                a[q] += f.nbytes
                width[q] += 1
        for k in range(1, n + 1):
            for f in made[k]:
                if not f.dropped_until:
                    continue  # nothing asks for it: it is there for recomputation only
                stop = self.edges[k]
                if f.last < stop or width[k] > 1:
                    s[k] += f.nbytes
                else:  # the frontier is this one value: the chain's flags say exactly who saves it
                    saved_by = _saving_stages(self.step, f, self.stage_of)
                    o[k] = k in saved_by
                    i[k + 1] = any(q > k for q in saved_by)
        forward, backward = self._flops(n)
        stages = [
            Stage(
                a=a[k],
                s=s[k],
                i=i[k],
                o=o[k],
                t=self._transient(k, made[k], s[k] + (a[k] if o[k] else 0)),
                forward=forward[k],
                backward=backward[k],
                name=self._name(k),
                ops=(self.edges[k - 1], self.edges[k]),
            )
            for k in range(1, n + 1)
        ]
        return Chain.of(stages, input_bytes=0)

    def _stage_at(self, position: int) -> int:
        return self.stage_of[min(position, self.fronts.n - 1)]

    def _transient(self, k: int, made: list[Fact], own: int) -> int:
        """Most bytes during the backward of stage k, less what it stores itself: natural bytes, what every plan keeps,
        and as much of the stage's own values as is still held."""
        start, stop = self.before[self.edges[k]], self.before[self.edges[k - 1]]
        if start >= stop:
            return 0
        change = [0] * (stop - start + 1)
        for f in made:
            if f.dropped_until and f.last < self.edges[k]:
                self._add(change, f.nbytes, f.death, f.dropped_until, start)
            elif f.dropped_until and k in _saving_stages(self.step, f, self.stage_of):
                self._add(change, f.nbytes, f.death, stop, start)
        held = accumulate(change[:-1])
        return max(0, max(x + y for x, y in zip(self.level[start:stop], held, strict=True)) - own)

    @staticmethod
    def _add(change: list[int], nbytes: int, begin: int, end: int, start: int) -> None:
        begin, end = max(begin - start, 0), min(end - start, len(change) - 1)
        if end > begin:
            change[begin] += nbytes
            change[end] -= nbytes

    @property
    def level(self) -> list[int]:
        """Per moment, natural bytes and what every plan keeps beyond its natural life."""
        if not hasattr(self, "_level"):
            change = [0] * (self.step.n_moments + 1)
            for f in self.fronts.facts.values():
                if f.always and f.kept_until > f.death:
                    change[f.death] += f.nbytes
                    change[min(f.kept_until, self.step.n_moments)] -= f.nbytes
            kept = accumulate(change[:-1])
            self._level = [x + y for x, y in zip(self.step.base_bytes, kept, strict=True)]
        return self._level

    def _flops(self, n: int) -> tuple[list[float], list[float]]:
        forward, backward = [0.0] * (n + 1), [0.0] * (n + 1)
        for o, op in enumerate(self.step.ops[: self.fronts.n]):
            forward[self.stage_of[o]] += op.flops
        for m in range(self.first_backward, self.step.n_moments):
            what, position = self.step.moments[m], self.step.positions[m]
            if what >= 0 and position >= 0:
                backward[self._stage_at(position)] += self.step.ops[what].flops
        return forward, backward

    def _name(self, k: int) -> str:
        first, last = self.step.ops[self.edges[k - 1]], self.step.ops[self.edges[k] - 1]
        names = [op.module or op.name for op in (first, last)]
        return names[0] if names[0] == names[1] else f"{names[0]} .. {names[1]}"


def _saving_stages(step: Step, f: Fact, stage_of: Sequence[int]) -> set[int]:
    """The stages in whose backward the value is asked for."""
    saves = (step.saves[q] for q in step.saves_of.get(f.value, ()))
    return {stage_of[max(step.positions[s.uses[0]], 0)] for s in saves if s.uses}


def _lift_schedule(fronts: Frontiers, chain: Chain, moves: Sequence[Move]) -> Lists:
    """Stages that are held or recorded before backward begins say what to keep; every run after that is put before the
    next backward that asks for something, and runs whose results nobody wants are left out."""
    step = fronts.step
    begin = next(k for k, m in enumerate(moves) if m.action is Action.BACKWARD)
    edges = [0, *(stop for _, stop in chain.ops)]
    held = {edges[m.k] for m in moves[:begin] if m.action is Action.HOLD}
    held -= {edges[m.k] for m in moves[:begin] if m.action is Action.DROP}
    recorded = {m.k for m in moves[:begin] if m.action is Action.RECORD}
    stage_of = [k for k, (start, stop) in enumerate(chain.ops, 1) for _ in range(start, stop)]
    keep = {
        f.value
        for f in fronts.facts.values()
        if f.always
        or f.free
        or not recorded.isdisjoint(_saving_stages(step, f, stage_of))
        or any(f.born < p <= f.last for p in held)
    }
    # Of each stage's backward, the unpacks; runs can only stand there.
    unpacks: dict[int, list[int]] = {}
    for m in range(fronts.begin, step.n_moments):
        if step.moments[m] < 0 and step.positions[m] >= 0:
            unpacks.setdefault(stage_of[step.positions[m]], []).append(m)
    lists: dict[int, list[int]] = {}
    waiting: list[int] = []
    for action, k in moves[begin:]:
        if action in (Action.RUN, Action.RECORD):
            waiting += [o for o in range(*chain.ops[k - 1]) if fronts.relevant[o]]
        elif action is Action.BACKWARD and waiting:
            asking = [m for m in unpacks.get(k, ()) if step.saves[~step.moments[m]].value not in keep]
            if asking:
                lists.setdefault(asking[0], []).extend(waiting)
                waiting = []
    return _pruned(step, frozenset(keep), lists)


def _pruned(step: Step, keep: frozenset[int], lists: Mapping[int, Sequence[int]]) -> Lists:
    """The lists without runs whose results nobody wants before they are made again, and without idle kept values."""
    needed: set[int] = set()
    runs: dict[int, tuple[int, ...]] = {}
    read: set[int] = set()
    for m in range(step.n_moments - 1, -1, -1):
        if step.moments[m] >= 0:
            continue
        value = step.saves[~step.moments[m]].value
        if value not in keep and not step.is_external(value):
            needed.add(value)
        ops: list[int] = []
        for o in reversed(lists.get(m, ())):
            op = step.ops[o]
            if needed.isdisjoint(op.writes):
                continue
            needed.difference_update(op.writes)
            read.update(op.reads)
            needed.update(r for r in op.reads if r not in keep and not step.is_external(r))
            ops.append(o)
        if ops:
            runs[m] = tuple(reversed(ops))
    used = {s.value for s in step.saves if s.uses}
    return frozenset(v for v in keep if v in used or v in read), runs
