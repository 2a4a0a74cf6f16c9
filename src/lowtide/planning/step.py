"""`Step`: one training step as plain data. What `trace` writes and every planner reads. No torch here.

The step is told on one axis of *moments*. A moment is either an op (one call that writes storage, in execution
order: forward and loss, backward, optimizer) or an unpack (backward asks for a tensor that autograd saved). Views
are not ops: any view can be rebuilt from the storage it looks at.

Memory facts are held per *storage version*, a `Value`: an op reads values and writes values, and an in-place op
makes the next version of the storage it writes to. The step was traced with every saved tensor dropped, so that a
storage's life [birth, death) is its *natural* one: as long as the user's code, the graph or the engine hold it, no
plan can end it. What a plan decides is who lives beyond that.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import Any, cast

from lowtide.errors import InputError

FORMAT = 1


class Category(str, Enum):
    """What a storage's bytes are for."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    INPUT = "input"
    ACTIVATION = "activation"  # a forward storage that autograd saves for backward
    TRANSIENT = "transient"  # anything else that lives for a part of the step


class Phase(str, Enum):
    """The part of the step that an op runs in. The loss belongs to forward."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of memory. `birth` is the moment of the op that allocated it, or -1 if it stood before the step began
    (a *standing* storage). It is alive during every moment m with birth <= m < death, counting nothing that autograd
    saved; `death == step.n_moments` means that it outlives the step. `external`: not written first by an op of this
    step (parameters, buffers, inputs, constants), so its content is there whenever it is wanted."""

    nbytes: int
    category: Category
    birth: int
    death: int
    external: bool


@dataclass(frozen=True, slots=True)
class Value:
    """Version `version` of storage `storage`. `op` is the index of the op that wrote it (-1: there before), and
    `overwritten` the index of the op that wrote the next version (-1: none): from that op on the content is gone."""

    storage: int
    version: int
    op: int
    overwritten: int


@dataclass(frozen=True, slots=True)
class Op:
    """One call that wrote storage.

    Attributes:
        name: full ATen name, `aten.convolution.default`.
        module: path of the module it ran in (`layer1.0.conv1`), or '' for the model or the loss itself.
        reads, writes: value ids. Every id in `writes` has this op as its `Value.op`.
        inplace: pairs (old, new) of value ids on one storage, old in `reads` and new in `writes`: the op takes
            the old version's storage over. A replay consumes it, or works on a copy if the old version is needed.
        scratch_bytes: bytes a replay allocates besides its outputs, while it runs (copies of buffers that the op
            updates, which a replay must not touch).
        flops: multiplications and additions (2 per multiply-add) of convolutions, matmuls, attention; else 0.
        moment: where it stands on the axis.
        pinned: '' if the op may be replayed, else the reason why not; what it wrote must then be kept.
        random: it draws random numbers; a replay restores the generator first.
        dtype: the floating point type it computes in, `float32`; '' if it has none.
        traffic_bytes: bytes of the tensors it reads and writes, as far as it touches them; 0 if that is not known.
    """

    name: str
    phase: Phase
    module: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    inplace: tuple[tuple[int, int], ...]
    scratch_bytes: int
    flops: int
    moment: int
    pinned: str
    random: bool
    dtype: str = ""
    traffic_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Save:
    """One tensor that autograd saved in forward: `value`, by the node of forward op `op`. Backward asks for it at
    the moments `uses` (mostly one; none if it never does) and lets go of it at moment `release`: it is needed during
    every moment m with uses[0] <= m < release. A kept value is held from forward on, up to `release`.

    `codec` says what is enough for that node to compute the same to the bit (`planning.compress`): '' for all of it."""

    value: int
    op: int
    uses: tuple[int, ...]
    release: int
    codec: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Saves that are answered from less than what they saved: `value` is held for them instead of value `of`, and
    `codec` makes one of the other."""

    value: int
    of: int
    codec: str
    saves: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        moments: per moment the index of an op (>= 0), or `~save` (< 0) where backward unpacks that save.
        positions: per moment the index of the forward op it belongs to: the op itself in forward, in backward the op
            whose gradient is being computed (never rising), n_forward - 1 before the first, and -1 in the optimizer.
        n_forward: ops[:n_forward] are forward and loss, in order.
        meta: what was traced, for people: model, inputs, device, torch version, and where costs are from.
        seconds: per op what it takes on some device; empty if that is not known (`planning.cost`).
        workspace_bytes: per op what its kernel allocates besides outputs while it runs; empty if not known.
        codes: what is held in the place of saved values; a step as it was traced has none (`planning.compress`).
    """

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    storages: tuple[Storage, ...]
    saves: tuple[Save, ...]
    moments: tuple[int, ...]
    positions: tuple[int, ...]
    n_forward: int
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: tuple[float, ...] = ()
    workspace_bytes: tuple[int, ...] = ()
    codes: tuple[Code, ...] = ()

    @property
    def n_moments(self) -> int:
        return len(self.moments)

    @cached_property
    def base_bytes(self) -> tuple[int, ...]:
        """Per moment the bytes above the start of the step that no plan can change: every storage that is born in
        the step, while it is naturally alive, and the workspace of the op. Length n_moments."""
        change = [0] * (self.n_moments + 1)
        for s in self.storages:
            if s.birth >= 0:
                change[s.birth] += s.nbytes
                change[min(s.death, self.n_moments)] -= s.nbytes
        level = list(accumulate(change[:-1]))
        for op, workspace in zip(self.ops, self.workspace_bytes, strict=False):
            level[op.moment] += workspace
        return tuple(level)

    @cached_property
    def standing_bytes(self) -> int:
        """Bytes allocated before the step began: parameters, buffers, inputs, optimizer state, old gradients."""
        return sum(s.nbytes for s in self.storages if s.birth < 0)

    @cached_property
    def category_bytes(self) -> dict[Category, int]:
        """Total bytes of storages per category, standing or born in the step (not a peak)."""
        total = dict.fromkeys(Category, 0)
        for s in self.storages:
            total[s.category] += s.nbytes
        return total

    @cached_property
    def saves_of(self) -> dict[int, tuple[int, ...]]:
        """Value id -> ids of its saves, in the order they were packed."""
        out: dict[int, list[int]] = {}
        for i, save in enumerate(self.saves):
            out.setdefault(save.value, []).append(i)
        return {v: tuple(ids) for v, ids in out.items()}

    def nbytes(self, value: int) -> int:
        return self.storages[self.values[value].storage].nbytes

    def is_external(self, value: int) -> bool:
        """Whether the value can be read at any time without a plan: it sits in an external storage, unchanged. Writes
        after forward do not count (`overwritten` is about forward ops): the optimizer writes every parameter."""
        v = self.values[value]
        return self.storages[v.storage].external and v.overwritten < 0

    def is_pinned(self, value: int) -> str:
        """'' if a plan may drop the value and recompute it, else the reason why it must be kept."""
        v = self.values[value]
        if v.op < 0:
            return "" if v.overwritten < 0 else "its storage is overwritten later in the step"
        if v.op >= self.n_forward:
            return "it was written in backward"
        return self.ops[v.op].pinned

    @cached_property
    def code_values(self) -> frozenset[int]:
        """Ids of the values that `codes` hold."""
        return frozenset(c.value for c in self.codes)

    @cached_property
    def forward_flops(self) -> int:
        return sum(op.flops for op in self.ops[: self.n_forward])

    @cached_property
    def total_flops(self) -> int:
        return sum(op.flops for op in self.ops)

    @cached_property
    def total_seconds(self) -> float:
        """Seconds of the step without a plan; 0 if costs are not known."""
        return sum(self.seconds)

    def replay_scratch_bytes(self, op: int) -> int:
        """What running op `op` again allocates besides its outputs: its own scratch and its kernel's workspace."""
        return self.ops[op].scratch_bytes + (self.workspace_bytes[op] if self.workspace_bytes else 0)

    @cached_property
    def digest(self) -> str:
        """Hex digest of everything but costs and `meta`: two steps with the same digest can run under the same
        plans."""
        content = {k: v for k, v in self.to_json().items() if k not in ("meta", "seconds", "workspace_bytes")}
        text = json.dumps(content, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, Any]:
        """Columns of plain lists: a step of 5,000 ops is about 1 MB of text."""
        names: dict[str, int] = {}

        def name_id(s: str) -> int:
            return names.setdefault(s, len(names))

        ops = [
            [
                name_id(o.name), o.phase.value, name_id(o.module), o.reads, o.writes, o.inplace,
                o.scratch_bytes, o.flops, o.moment, name_id(o.pinned), int(o.random), name_id(o.dtype),
                o.traffic_bytes,
            ]
            for o in self.ops
        ]  # fmt: skip
        return {
            "format": FORMAT,
            "kind": "lowtide.step",
            "n_forward": self.n_forward,
            "ops": ops,
            "values": [[v.storage, v.version, v.op, v.overwritten] for v in self.values],
            "storages": [[s.nbytes, s.category.value, s.birth, s.death, int(s.external)] for s in self.storages],
            "saves": [[s.value, s.op, s.uses, s.release, s.codec] for s in self.saves],
            "moments": self.moments,
            "positions": self.positions,
            "names": list(names),
            "meta": self.meta,
            "seconds": self.seconds,
            "workspace_bytes": self.workspace_bytes,
            "codes": [[c.value, c.of, c.codec, c.saves] for c in self.codes],
        }

    @staticmethod
    def from_json(data: Any) -> Step:
        """Inverse of `to_json`.

        Raises:
            InputError: if `data` is not a step, or one of another format version.
        """
        if not isinstance(data, dict) or data.get("kind") != "lowtide.step":  # pyright: ignore[reportUnknownMemberType]
            raise InputError("this is not a Lowtide step: no field 'kind' with the value 'lowtide.step'")
        fields = cast(dict[str, Any], data)
        if fields.get("format") != FORMAT:
            raise InputError(
                f"this step has format {fields.get('format')!r}, this Lowtide reads format {FORMAT}: trace it again"
            )
        try:
            names = fields["names"]
            ops = tuple(
                Op(
                    names[n], Phase(ph), names[mod], tuple(r), tuple(w), tuple((a, b) for a, b in ip),
                    scratch, flops, moment, names[pin], bool(rnd), names[dtype], traffic,
                )
                for n, ph, mod, r, w, ip, scratch, flops, moment, pin, rnd, dtype, traffic in fields["ops"]
            )  # fmt: skip
            return Step(
                ops=ops,
                values=tuple(Value(*v) for v in fields["values"]),
                storages=tuple(Storage(n, Category(c), b, d, bool(e)) for n, c, b, d, e in fields["storages"]),
                saves=tuple(Save(v, o, tuple(u), r, c) for v, o, u, r, c in fields["saves"]),
                moments=tuple(fields["moments"]),
                positions=tuple(fields["positions"]),
                n_forward=fields["n_forward"],
                meta=fields["meta"],
                seconds=tuple(fields["seconds"]),
                workspace_bytes=tuple(fields["workspace_bytes"]),
                codes=tuple(Code(v, of, c, tuple(s)) for v, of, c, s in fields["codes"]),
            )
        except (KeyError, IndexError, TypeError, ValueError) as e:
            raise InputError(f"this step is damaged ({type(e).__name__}: {e}): trace it again") from e

    def __repr__(self) -> str:
        from lowtide.report.text import describe_step

        return describe_step(self)
