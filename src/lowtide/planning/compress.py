"""compress: a step in which backward is answered from less than what autograd saved, losslessly.

Much of what autograd saves is more than its node needs. The backward of a ReLU asks for the sign of its result, that
of a pool for the shape of its input, that of a max pool for indices that are 8 bytes each although a plane has a few
thousand places; a dropout mask is a bit per element in a byte, or in four. `trace` writes down what is enough
(`Save.codec`).

`compressed` makes of that another step, which every planner takes like any other: where all saves of a value can do
with a code, they save the *code* instead, a second output of the op that wrote the value, and what decoding hands out
is in the step's base curve. A plan of such a step keeps the code or makes it again, as it does with any value.

Codecs (bytes of the code for n elements, k = bytes of an element of the value):

    nonpositive/k  a bit per element: it is <= 0; enough for ReLU's backward              n / 8
    positive/k     a bit per element: it is > 0; enough for leaky ReLU's backward         n / 8
    bits           bool: a bit per element                                                n / 8
    two/k          elements are 0 or one other value, the noise of dropout on the CPU     n / 8 + 8
    index/w        int64 that are small enough for w bytes                                n w
    shape          sizes and strides, no content; for the backward of pools and padding   0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lowtide.planning.schedule import handed_until
from lowtide.planning.step import Category, Code, Save, Step, Storage, Value

# Smaller values are not worth the calls that encode and decode them.
LEAST_BYTES = 1 << 14

# Codes of bits are made and read in chunks; such a chunk of bytes is all that it takes besides. Larger on devices where
# a call costs more than an array of this size.
CHUNK_BYTES = 1 << 16
DEVICE_CHUNK_BYTES = 1 << 24

SHAPE = "shape"

# Encoding and decoding take as long as so many passes over the value: measured on a CPU, inside its caches.
_PASSES = {"nonpositive": (13, 8), "positive": (13, 8), "two": (20, 10), "bits": (17, 12), "index": (2, 2)}


def chunk_bytes(device: str) -> int:
    """Most bytes of a chunk on a device: `'cpu'`, `'cuda:0'`."""
    return CHUNK_BYTES if device.startswith(("cpu", "meta")) else DEVICE_CHUNK_BYTES


def code_bytes(codec: str, nbytes: int) -> int:
    """Size of the code of a value of `nbytes` bytes."""
    name, _, number = codec.partition("/")
    if name == SHAPE:
        return 0
    if name == "index":
        return nbytes // 8 * int(number)
    bits = -(-nbytes // int(number or 1) // 8)
    return bits + 8 if name == "two" else bits


def _scratch_bytes(codec: str, nbytes: int, device: str) -> int:
    """What encoding allocates while it runs. Decoding takes no more, and less than the op that follows it."""
    name = codec.partition("/")[0]
    if name in ("index", SHAPE):
        return 0
    chunk = min(chunk_bytes(device), code_bytes(codec, nbytes))
    return 3 * chunk if name == "two" else chunk


def compressed(step: Step, least_bytes: int = LEAST_BYTES) -> Step:
    """The step with codes wherever they can be; the same step if that is nowhere. Linear time.

    Values that stay in memory by themselves until backward wants them are left alone, and so are those that are written
    over, that no op of forward wrote, or whose op cannot run again.

    Args:
        least_bytes: smaller values are left alone.
    """
    if step.codes:
        return step
    device = str(step.meta.get("device", "cpu"))
    values, storages = list(step.values), list(step.storages)
    writes: dict[int, list[int]] = {}
    codes: list[Code] = []
    nothing = -1
    for v, codec, ids in _groups(step, least_bytes):
        value = step.values[v]
        nbytes, born = step.nbytes(v), step.ops[value.op].moment
        if codec == SHAPE:
            if nothing < 0:
                nothing = len(values)
                values.append(Value(len(storages), 0, -1, -1))
                storages.append(Storage(0, Category.TRANSIENT, -1, step.n_moments, external=True))
            code = nothing
        else:
            code = len(values)
            values.append(Value(len(storages), 0, value.op, -1))
            # Nobody but the plan holds it.
            storages.append(Storage(code_bytes(codec, nbytes), Category.ACTIVATION, born, born, external=False))
            writes.setdefault(value.op, []).append(code)
        codes.append(Code(code, v, codec, ids))
        storages += _passing(_scratch_bytes(codec, nbytes, device), born, born + 1)
        handed = 0 if codec == SHAPE and device.startswith(("cpu", "meta")) else nbytes
        for s in ids:
            for k, use in enumerate(step.saves[s].uses):
                storages += _passing(handed, use + 1, handed_until(step, s, k))  # what runs at `use` runs before
    if not codes:
        return step
    saved_as = {s: c.value for c in codes for s in c.saves}
    return replace(
        step,
        ops=tuple(replace(op, writes=(*op.writes, *writes[i])) if i in writes else op for i, op in enumerate(step.ops)),
        values=tuple(values),
        storages=tuple(storages),
        saves=tuple(replace(s, value=saved_as.get(i, s.value)) for i, s in enumerate(step.saves)),
        codes=tuple(codes),
    )


def _passing(nbytes: int, birth: int, death: int) -> Iterator[Storage]:
    if nbytes and birth < death:
        yield Storage(nbytes, Category.TRANSIENT, birth, death, external=False)


def _groups(step: Step, least_bytes: int) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """What can be coded: value, codec, saves."""
    for v, ids in step.saves_of.items():
        value = step.values[v]
        by_itself = 0 <= value.op < step.n_forward and value.overwritten < 0 and not step.ops[value.op].pinned
        if step.is_external(v) or not by_itself or step.nbytes(v) < max(1, least_bytes):
            continue
        used = min((u for s in ids for u in step.saves[s].uses), default=step.n_moments)
        if step.storages[value.storage].death > used:
            continue
        shapes = tuple(s for s in ids if step.saves[s].codec == SHAPE)
        others = tuple(s for s in ids if step.saves[s].codec != SHAPE)
        if shapes:
            yield v, SHAPE, shapes
        codecs = {step.saves[s].codec for s in others}
        if len(codecs) == 1 and "" not in codecs:
            yield v, codecs.pop(), others


def uncompressed(step: Step) -> Step:
    """The step as it was traced: the inverse of `compressed`."""
    if not step.codes:
        return step
    first = min(c.value for c in step.codes)
    codes = step.code_values
    saved: dict[int, Save] = {s: replace(step.saves[s], value=c.of) for c in step.codes for s in c.saves}
    return replace(
        step,
        ops=tuple(replace(op, writes=tuple(w for w in op.writes if w not in codes)) for op in step.ops),
        values=step.values[:first],
        storages=step.storages[: step.values[first].storage],
        saves=tuple(saved.get(i, s) for i, s in enumerate(step.saves)),
        codes=(),
    )


def code_seconds(step: Step, keep: Iterable[int], runs: Mapping[int, tuple[int, ...]]) -> float:
    """Seconds that a plan's codes take: made once in forward if they are kept, and with every run of their op, and read
    at every use. 0 if the step has no costs.

    Reckoned as so many passes over the value, at what the step's own ops without arithmetic take per byte."""
    if not step.codes or not step.seconds:
        return 0.0
    passing = [(t, op.traffic_bytes) for t, op in zip(step.seconds, step.ops, strict=True) if not op.flops]
    traffic = sum(n for _, n in passing)
    per_byte = sum(t for t, n in passing if n) / traffic if traffic else 0.0
    kept, again = frozenset(keep), Counter(o for ops in runs.values() for o in ops)
    passed = 0
    for c in step.codes:
        if c.codec != SHAPE:
            encoding, decoding = _PASSES[c.codec.partition("/")[0]]
            made = int(c.value in kept) + again[step.values[c.of].op]
            read = sum(len(step.saves[s].uses) for s in c.saves)
            passed += (made * encoding + read * decoding) * step.nbytes(c.of)
    return passed * per_byte


def gain_bytes(step: Step) -> int:
    """How much smaller the codes of a compressed step are than the values that they stand for, in all: values that
    other saves want whole do not count."""
    whole = {s.value for s in step.saves}
    gone = {c.of for c in step.codes} - whole
    return sum(map(step.nbytes, gone)) - sum(map(step.nbytes, step.code_values))
