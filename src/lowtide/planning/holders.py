"""holders: which module each byte of one moment belongs to. The same count as `simulate`, told by what is held."""

from __future__ import annotations

from lowtide.planning.schedule import Event, handed_until, schedule
from lowtide.planning.simulate import Kept, Timeline
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
    for i, s in enumerate(step.storages):
        if s.birth < 0:
            add(OPTIMIZER if s.category is Category.OPTIMIZER else readers.get(i, ""), s.nbytes)
        elif s.birth <= moment < s.death:
            add(step.ops[step.moments[s.birth]].module, s.nbytes)
    what = step.moments[moment]
    if what >= 0 and step.workspace_bytes:
        add(step.ops[what].module, step.workspace_bytes[what])
    for module, nbytes in _held(timeline, moment):
        add(module, nbytes)
    return dict(sorted(total.items(), key=lambda kv: -kv[1]))


def _first_readers(step: Step) -> dict[int, str]:
    """Storage -> module of the first op that reads it."""
    found: dict[int, str] = {}
    for op in step.ops:
        for v in op.reads:
            found.setdefault(step.values[v].storage, op.module)
    return found


def _held(timeline: Timeline, moment: int) -> list[tuple[str, int]]:
    """What the plan, or autograd without one, holds at the highest point of the moment: module and bytes."""
    step, keep = timeline.step, timeline.keep
    order = schedule(step, keep, timeline.runs)
    kept = Kept(step, keep, order)
    made_by = {step.values[v].storage: step.values[v].op for v in keep}
    since_forward = {s: nbytes for s, (start, end, nbytes) in kept.stays.items() if start <= moment < end}
    rebuilt = _Rebuilt(step, keep, kept)
    for event in order.events:
        if event.moment < moment:
            rebuilt.pass_(event)
    rebuilt.let_go(moment)
    top = rebuilt.top(next((e for e in order.events if e.moment == moment), None), moment)
    held = [(s, n) for s, n in since_forward.items() if s not in top.freed]
    out = [(_module(step, made_by[s]), n) for s, n in held]
    out += [(_module(step, step.values[v].op), rebuilt.size[v]) for v in top.values]
    if top.op >= 0:
        op = step.ops[top.op]
        out.append((op.module, step.replay_scratch_bytes(top.op)))
        out += [(op.module, rebuilt.size[w]) for w in op.writes]
    return out


def _module(step: Step, op: int) -> str:
    return step.ops[op].module if op >= 0 else ""


class _Top:
    """The highest point inside a moment: recomputed values, the op that runs (-1: none), kept storages then gone."""

    def __init__(self, values: list[int], op: int, freed: set[int]) -> None:
        self.values, self.op, self.freed = values, op, freed


class _Rebuilt:
    """Recomputed values as time goes by: those that the tape holds, and those in the graph's hands with their end."""

    def __init__(self, step: Step, keep: frozenset[int], kept: Kept) -> None:
        self.step, self.keep, self.kept = step, keep, kept
        self.size = [0 if step.storages[v.storage].external else step.storages[v.storage].nbytes for v in step.values]
        self.tape: dict[int, int] = {}  # value -> until when handles hold it, too
        self.handed: list[tuple[int, int]] = []  # value, until

    def let_go(self, moment: int) -> None:
        self.handed = [(v, until) for v, until in self.handed if until > moment]

    def pass_(self, event: Event) -> None:
        """Everything that happens at the event's moment."""
        self.top(event, event.moment)

    def top(self, event: Event | None, moment: int) -> _Top:
        """Go through the moment; its highest point."""
        self.let_go(moment)
        freed: set[int] = set()
        best, most = _Top(self._now(), -1, set()), self._bytes()
        if event is None:
            return best
        gone = 0
        for o, retain, consume, free in event.actions:
            op = self.step.ops[o]
            for v in consume:
                del self.tape[v]
            high = self._bytes() + self.step.replay_scratch_bytes(o) + sum(self.size[w] for w in op.writes) - gone
            if high > most:
                best, most = _Top(self._now(), o, set(freed)), high
            for w in retain:
                self.tape[w] = 0
            for v in free:
                if v in self.keep:
                    nbytes = self.kept.freed(v, moment)
                    gone += nbytes
                    if nbytes:
                        freed.add(self.step.values[v].storage)
                    continue
                until = self.tape.pop(v)
                if until > moment:
                    self.handed.append((v, until))
        if self._bytes() - gone > most:
            best = _Top(self._now(), -1, set(freed))
        self._answer(event, moment)
        return best

    def _answer(self, event: Event, moment: int) -> None:
        save = self.step.saves[event.save]
        if save.value in self.tape:
            until = max(handed_until(self.step, event.save, save.uses.index(moment)), self.tape[save.value])
            if event.ends_hold:
                del self.tape[save.value]
                self.handed.append((save.value, until))
            else:
                self.tape[save.value] = until

    def _now(self) -> list[int]:
        return [*self.tape, *(v for v, _ in self.handed)]

    def _bytes(self) -> int:
        return sum(self.size[v] for v in self._now())
