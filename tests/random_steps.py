"""Small steps for tests: random ones that autograd could have made, chains, and hand-made ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from lowtide.planning.step import Category, Op, Phase, Save, Step, Storage, Value


@dataclass
class Call:
    """One forward op to be: ids are values of the builder."""

    reads: list[int]
    writes: list[int]
    inplace: list[tuple[int, int]] = field(default_factory=list)
    saves: list[int] = field(default_factory=list)
    unused: set[int] = field(default_factory=set)  # indices into `saves` that backward never asks for
    scratch: int = 0
    pinned: str = ""
    grad: int = -1  # bytes of the gradient of each read; -1: the size of what is read
    transient: int = 0  # bytes that the backward op has besides
    parameter_grad: int = 0


class Builder:
    """Puts forward calls down one by one, then plays autograd's backward over them."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.values: list[list[int]] = []
        self.calls: list[Call] = []
        self.hold: dict[int, int] = {}  # storage -> 'death' given by hand: -1 to the end of forward, -2 of the step
        self.late: dict[int, int] = {}  # index of a call -> moments by which its saves are released later

    def standing(self, nbytes: int, category: Category = Category.PARAMETER) -> int:
        self.storages.append(Storage(nbytes, category, -1, 0, True))
        self.values.append([len(self.storages) - 1, 0, -1, -1])
        return len(self.values) - 1

    def fresh(self, nbytes: int) -> int:
        """A value that the next call writes into a storage of its own."""
        self.storages.append(Storage(nbytes, Category.TRANSIENT, len(self.calls), 0, False))
        self.values.append([len(self.storages) - 1, 0, len(self.calls), -1])
        return len(self.values) - 1

    def next_version(self, old: int) -> int:
        """The version that the next call makes of `old` in place."""
        storage, version, _, _ = self.values[old]
        self.values[old][3] = len(self.calls)
        self.values.append([storage, version + 1, len(self.calls), -1])
        return len(self.values) - 1

    def nbytes(self, v: int) -> int:
        return self.storages[self.values[v][0]].nbytes

    def call(self, call: Call) -> None:
        self.calls.append(call)

    def step(self, optimizer: int = 0, hold_until: int | None = None) -> Step:
        """Backward over all calls in reverse order; `hold_until`: death of storages with hold -2."""
        n = len(self.calls)
        storages, values = list(self.storages), [list(v) for v in self.values]
        ops = [
            Op(f"aten.op{k}.default", Phase.FORWARD, f"m{k}", tuple(c.reads), tuple(c.writes), tuple(c.inplace),
               c.scratch, 10 + k, k, c.pinned, False)
            for k, c in enumerate(self.calls)
        ]  # fmt: skip
        moments, positions = list(range(n)), list(range(n))
        saves: list[Save] = []
        made: dict[int, tuple[int, list[int]]] = {}  # save id -> release, uses
        ids_of: dict[int, list[int]] = {}
        for k, c in enumerate(self.calls):
            for i, v in enumerate(c.saves):
                if not storages[values[v][0]].external:
                    saves.append(Save(v, k, (), 0))
                    ids_of.setdefault(k, []).append(len(saves) - 1)
                    made[len(saves) - 1] = (0, [-1] if i in c.unused else [])

        grads: dict[int, int] = {}  # storage of an activation -> storage of its gradient

        def backward_op(k: int, reads: list[int], writes: list[int]) -> None:
            for w in writes:
                values[w][2] = len(ops)
            ops.append(
                Op(f"aten.op{k}_backward.default", Phase.BACKWARD, f"m{k}", tuple(reads), tuple(writes), (), 0, 20 + k,
                   len(moments), "", False)
            )  # fmt: skip
            moments.append(len(ops) - 1)
            positions.append(k)

        def allocate(nbytes: int, category: Category, death: int) -> int:
            storages.append(Storage(nbytes, category, len(moments), death, False))
            values.append([len(storages) - 1, 0, -1, -1])
            return len(values) - 1

        seed = allocate(self.nbytes(self.calls[-1].writes[0]), Category.TRANSIENT, -1)
        grads[values[self.calls[-1].writes[0]][0]] = values[seed][0]
        backward_op(n - 1, [], [seed])
        for k in range(n - 1, -1, -1):
            c = self.calls[k]
            asked = [s for s in ids_of.get(k, []) if made[s][1] != [-1]]
            for s in asked:
                made[s][1].append(len(moments))
                moments.append(~s)
                positions.append(k)
            wrote = {values[w][0] for w in c.writes}
            writes: list[int] = []
            for r in c.reads:
                storage = values[r][0]
                if storages[storage].external or storage in wrote:
                    continue  # no gradient wanted; in place the gradient is passed on
                size = c.grad if c.grad >= 0 else storages[storage].nbytes
                if storage in grads:  # added to what is there
                    writes.append(allocate(size, Category.TRANSIENT, len(moments) + 1))
                else:
                    writes.append(allocate(size, Category.TRANSIENT, -1))
                    grads[storage] = values[writes[-1]][0]
            if c.parameter_grad:
                writes.append(allocate(c.parameter_grad, Category.GRADIENT, -2))
            if c.transient:
                writes.append(allocate(c.transient, Category.TRANSIENT, len(moments) + 1))
            backward_op(k, [saves[s].value for s in asked], writes)
            for s in ids_of.get(k, []):
                made[s] = (len(moments) + self.late.get(k, 0), made[s][1])
            for storage in wrote:
                version0 = next(v for v in values if v[0] == storage)
                if version0[2] == k and storage in grads:  # the gradient goes with the op that made the storage
                    g = grads.pop(storage)
                    storages[g] = _died(storages[g], len(moments))
        for _ in range(optimizer):
            ops.append(Op("aten.adam.default", Phase.OPTIMIZER, "", (), (), (), 0, 0, len(moments), "", False))
            moments.append(len(ops) - 1)
            positions.append(-1)
        end = len(moments)
        death = [0] * len(storages)
        for k, c in enumerate(self.calls):
            for v in [*c.reads, *c.writes]:
                death[values[v][0]] = k + 1
        for i, s in enumerate(storages):
            if s.external or s.death == -2 or (s.birth >= n and s.death == -1):
                storages[i] = _died(s, end)
            elif s.birth < n:
                held = self.hold.get(i)
                d = (
                    death[i]
                    if held is None
                    else n
                    if held == -1
                    else (hold_until or end)
                    if held == -2
                    else max(held, death[i])
                )
                storages[i] = _died(s, min(d, end))
        saved = {values[s.value][0] for s in saves}
        storages = [
            Storage(s.nbytes, Category.ACTIVATION if i in saved else s.category, s.birth, s.death, s.external)
            for i, s in enumerate(storages)
        ]
        return Step(
            ops=tuple(ops),
            values=tuple(Value(*v) for v in values),
            storages=tuple(storages),
            saves=tuple(
                Save(s.value, s.op, () if made[i][1] == [-1] else tuple(made[i][1]), min(made[i][0], end))
                for i, s in enumerate(saves)
            ),
            moments=tuple(moments),
            positions=tuple(positions),
            n_forward=n,
            meta={"model": "random"},
        )  # fmt: skip


def _died(s: Storage, death: int) -> Storage:
    return Storage(s.nbytes, s.category, s.birth, death, s.external)


def random_step(seed: int, n_ops: int = 8, odd: bool = True) -> Step:
    """A random step of `n_ops` forward ops.

    Args:
        odd: with pinned ops, values that the user holds, saves that are never used or released late, saves of values
            that the op did not read, and several backward and optimizer ops in between.
    """
    rng = random.Random(seed)
    p_odd = rng.choice([0.0, 0.0, 0.1, 0.3]) if odd else 0.0
    b = Builder()
    x = b.standing(rng.randint(1, 9), Category.INPUT)
    weights = [b.standing(rng.randint(1, 4)) for _ in range(2)]
    buffer = b.standing(2, Category.BUFFER)
    usable, saved = [x], set[int]()
    p_small = rng.random()
    for k in range(n_ops):
        recent = usable[-1]
        reads = [recent]
        if len(usable) > 1 and rng.random() < 0.35:
            reads.append(rng.choice(usable[:-1]))  # a residual, or a branch
        if rng.random() < 0.5:
            reads.append(rng.choice(weights))
        c = Call(reads, [])
        external = b.storages[b.values[recent][0]].external
        if not external and recent not in saved and rng.random() < 0.3:
            new = b.next_version(recent)
            c.inplace = [(recent, new)]
            usable.remove(recent)
        else:
            new = b.fresh(rng.randint(1, 3) if rng.random() < p_small * 0.5 else rng.randint(4, 12))
        c.writes.append(new)
        if rng.random() < 0.2:
            c.writes.append(b.fresh(rng.randint(1, 3)))  # statistics, a mask, indices
        if rng.random() < 0.1:
            old = buffer
            buffer = b.next_version(old)
            c.writes.append(buffer)
            c.scratch += 2
        if rng.random() < 0.15:
            c.scratch += rng.randint(1, 3)
        overwritten = {old for old, _ in c.inplace}
        for v in dict.fromkeys([*reads, *c.writes]):
            chance = 0.8 if v in c.writes[1:] else 0.55
            if v not in overwritten and v != buffer and rng.random() < chance:
                c.saves.append(v)
        if rng.random() < p_odd:
            c.pinned = "it is odd"
        if rng.random() < p_odd * 0.5 and usable:
            c.saves.append(rng.choice(usable))  # saved without being read here
        c.unused = {i for i in range(len(c.saves)) if rng.random() < p_odd * 0.5}
        c.transient = rng.choice([0, 0, rng.randint(1, 10)])
        c.parameter_grad = rng.choice([0, rng.randint(1, 3)])
        if rng.random() < p_odd:
            b.late[k] = rng.randint(1, 4)
        if rng.random() < p_odd:
            b.hold[b.values[new][0]] = rng.choice([-1, -2, n_ops + rng.randint(1, 3 * n_ops)])
        b.call(c)
        saved.update(c.saves)
        usable.append(new)
        if len(usable) > 4 and rng.random() < 0.7:
            usable.pop(0)
    return b.step(optimizer=rng.choice([0, 0, 2]))


def steps(max_ops: int = 8, odd: bool = True) -> st.SearchStrategy[Step]:
    """Random steps for hypothesis."""
    return st.builds(random_step, st.integers(0, 10**6), st.integers(2, max_ops), st.just(odd))


def chain_step(a: Sequence[int], s: Sequence[int], i: Sequence[int], o: Sequence[int], t: Sequence[int]) -> Step:
    """The step of a chain of n stages (docs/thesis.md): stage k = 1..n makes `a[k]` bytes, saves `s[k-1]` bytes
    of its own, its input if `i[k-1]`, its output if `o[k-1]`; its backward takes `t[k-1]` bytes besides. The input,
    `a[0]` bytes, is external."""
    b = Builder()
    x = b.standing(a[0], Category.INPUT)
    for k in range(1, len(a)):
        y = b.fresh(a[k])
        c = Call([x], [y], grad=0, transient=t[k - 1])
        if s[k - 1]:
            c.writes.append(b.fresh(s[k - 1]))
            c.saves.append(c.writes[-1])
        if i[k - 1]:
            c.saves.append(x)
        if o[k - 1]:
            c.saves.append(y)
        b.call(c)
        x = y
    return b.step()


def uniform_chain(n: int, nbytes: int = 100) -> Step:
    """n equal ops, each of which saves its input; gradients as large as activations."""
    b = Builder()
    x = b.standing(nbytes, Category.INPUT)
    for _ in range(n):
        y = b.fresh(nbytes)
        b.call(Call([x], [y], saves=[x]))
        x = y
    return b.step()


def residual_net(blocks: int, nbytes: int = 100) -> Step:
    """`blocks` of conv -> norm -> relu_ -> conv -> norm -> `+= identity` -> relu_, as in a ResNet."""
    b = Builder()
    x = b.standing(nbytes, Category.INPUT)

    def conv(x: int) -> int:
        y = b.fresh(nbytes)
        b.call(Call([x, b.standing(4)], [y], saves=[x], parameter_grad=4))
        return y

    def norm(x: int) -> int:
        y, mean = b.fresh(nbytes), b.fresh(1)
        b.call(Call([x], [y, mean], saves=[x, mean]))
        return y

    def inplace(x: int, others: list[int], save: bool) -> int:
        y = b.next_version(x)
        b.call(Call([x, *others], [y], inplace=[(x, y)], saves=[y] if save else []))
        return y

    x = inplace(norm(conv(x)), [], True)
    for _ in range(blocks):
        identity = x
        x = norm(conv(inplace(norm(conv(x)), [], True)))
        x = inplace(inplace(x, [identity], False), [], True)
    loss = b.fresh(1)
    b.call(Call([x], [loss]))
    return b.step()


def random_plan(step: Step, rng: random.Random) -> tuple[frozenset[int], dict[int, tuple[int, ...]]]:
    """A random valid plan: some values are kept, and what is asked for is made anew from there, each time whatever
    happens to be missing, now and then more than that."""
    n = step.n_forward
    p_keep = rng.random()
    stuck: list[bool] = []  # ops that cannot run again
    for op in step.ops[:n]:
        reads = [step.values[r] for r in op.reads]
        stuck.append(bool(op.pinned) or any(r.overwritten >= 0 and (r.op < 0 or stuck[r.op]) for r in reads))
    keep = {
        v
        for v, value in enumerate(step.values)
        if 0 <= value.op < n and value.overwritten < 0 and (stuck[value.op] or rng.random() < p_keep)
    }
    runs: dict[int, tuple[int, ...]] = {}
    made: set[int] = set()
    for m, what in enumerate(step.moments):
        if what >= 0:
            continue
        fresh = set(made) if rng.random() < 0.7 else set[int]()  # or as if nothing were there
        wanted = {step.saves[~what].value} | ({rng.choice(sorted(made))} if made and rng.random() < 0.2 else set[int]())
        ops: list[int] = []
        for o in range(n - 1, -1, -1):
            if wanted & set(step.ops[o].writes) - keep - fresh and not stuck[o]:
                ops.append(o)
                wanted |= {r for r in step.ops[o].reads if not step.is_external(r)}
        if ops:
            runs[m] = tuple(reversed(ops))
            made.update(w for o in ops for w in step.ops[o].writes)
    return frozenset(keep), runs
