"""`Chain`: a network as a row of stages, each fed by the one before. The thesis' picture of training; no torch here.

Stage k (1..n) turns activation k-1 into activation k; activation 0 is the model's input. A *checkpoint* c, 0 < c < n,
keeps activation c from forward on. Checkpoints cut the chain into segments (c, j]: stages c+1..j are recomputed from
activation c just before their backward. The last segment is not recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, cast

from lowtide.errors import InputError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a chain, with the thesis' letters.

    Attributes:
        a: bytes of its output.
        s: bytes it saves for backward besides the storages of its input and its output.
        i: it saves the storage of its input.
        o: it saves the storage of its output.
        t: transient peak of its backward, in bytes: gradients and workspace, above what is stored.
        forward, backward: cost of one run, in seconds or FLOPs, as the chain's owner likes.
        name: for people.
        ops: the forward ops [start, stop) of the step that the chain was reduced from.
    """

    a: int
    s: int = 0
    i: bool = True
    o: bool = False
    t: int = 0
    forward: float = 1.0
    backward: float = 1.0
    name: str = ""
    ops: tuple[int, int] | None = None


@dataclass(frozen=True)
class Chain:
    """n stages as columns (a chain of a million stages is a handful of tuples). Build one with `from_arrays` or `of`.

    Attributes:
        a: bytes of activations 0..n; length n + 1. Every other column has length n, stage k at index k-1.
        s, i, o, t, forward, backward, names, ops: as in `Stage`. `names` and `ops` may be empty.
    """

    a: tuple[int, ...]
    s: tuple[int, ...]
    i: tuple[bool, ...]
    o: tuple[bool, ...]
    t: tuple[int, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    names: tuple[str, ...] = field(default=())
    ops: tuple[tuple[int, int], ...] = field(default=())

    def __post_init__(self) -> None:
        if len(self.a) < 2:
            raise InputError(
                f"a chain needs at least one stage: a has {len(self.a)} sizes, the input's and one per stage"
            )
        for column in ("s", "i", "o", "t", "forward", "backward"):
            _require_length(column, len(getattr(self, column)), self.n)
        for column in ("names", "ops"):
            if getattr(self, column):
                _require_length(column, len(getattr(self, column)), self.n)
        for column in ("a", "s", "t"):
            _require_bytes(column, getattr(self, column))
        for column in ("forward", "backward"):
            values = getattr(self, column)
            if not min(values) >= 0:
                k = next(k for k, v in enumerate(values, 1) if not v >= 0)
                raise InputError(
                    f"{column} of stage {k} is {values[k - 1]!r}: a cost must be a number that is not negative"
                )

    @staticmethod
    def from_arrays(
        a: Iterable[int],
        s: Iterable[int] | None = None,
        i: Iterable[Any] | None = None,
        o: Iterable[Any] | None = None,
        t: Iterable[int] | None = None,
        forward: Iterable[float] | None = None,
        backward: Iterable[float] | None = None,
        names: Iterable[str] = (),
    ) -> Chain:
        """A chain from columns: `a` is `[a_0..a_n]`, the others `[x_1..x_n]`, lists or arrays.

        Columns left out mean: nothing saved besides the input (`s` 0, `i` 1, `o` 0), no transients, cost 1 per stage.

        Raises:
            InputError: if lengths differ, or a value is negative or not an integer number of bytes.

        Example:
            >>> Chain.from_arrays(a=[1] * 9).n
            8
        """
        sizes = _ints("a", a)
        n = max(len(sizes) - 1, 0)
        return Chain(
            a=sizes,
            s=(0,) * n if s is None else _ints("s", s),
            i=(True,) * n if i is None else _flags("i", i),
            o=(False,) * n if o is None else _flags("o", o),
            t=(0,) * n if t is None else _ints("t", t),
            forward=(1.0,) * n if forward is None else tuple(forward),
            backward=(1.0,) * n if backward is None else tuple(backward),
            names=tuple(names),
        )

    @staticmethod
    def of(stages: Sequence[Stage], input_bytes: int) -> Chain:
        """A chain of `stages` fed by an input of `input_bytes`."""
        ops = tuple(x.ops for x in stages if x.ops is not None)
        return Chain(
            a=(input_bytes, *(x.a for x in stages)),
            s=tuple(x.s for x in stages),
            i=tuple(x.i for x in stages),
            o=tuple(x.o for x in stages),
            t=tuple(x.t for x in stages),
            forward=tuple(x.forward for x in stages),
            backward=tuple(x.backward for x in stages),
            names=tuple(x.name for x in stages) if any(x.name for x in stages) else (),
            ops=ops if len(ops) == len(stages) else (),
        )

    @property
    def n(self) -> int:
        """Number of stages."""
        return len(self.a) - 1

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Stages 1..n; stage k is `stages[k - 1]`."""
        names, ops = self.names or ("",) * self.n, self.ops or (None,) * self.n
        columns = (self.a[1:], self.s, self.i, self.o, self.t, self.forward, self.backward, names, ops)
        return tuple(Stage(*row) for row in zip(*columns, strict=True))

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """Prefix sums P_0..P_n of d_l, what stage l leaves stored for backward once stage l+1 has run:
        `d_l = s_l + a_l [o_l or i_{l+1}]` (the last stage has no successor)."""
        reads_next = (*self.i[1:], False)
        rows = zip(self.s, self.a[1:], self.o, reads_next, strict=True)
        return tuple(accumulate((s + (a if o or i else 0) for s, a, o, i in rows), initial=0))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """h_1..h_n (h_k at index k-1): bytes during the backward of stage k if everything from stage 1 on is stored,
        input aside: `h_k = P_{k-1} + s_k + a_k o_k + t_k`. Hence `M(c, j) = max(h_{c+1..j}) - P_c`."""
        rows = zip(self.stored, self.s, self.a[1:], self.o, self.t, strict=False)
        return tuple(p + s + (a if o else 0) + t for p, s, a, o, t in rows)

    def segment_peak(self, c: int, j: int) -> int:
        """M(c, j): most bytes while stages c+1..j are run backward from activation c, without activation c itself.

        The sum is the thesis' `H(c,k) = sum_{c<l<k} (s_l + a_l [o_l or i_{l+1}]) + s_k + a_k o_k`, and
        `M(c,j) = max_{c<k<=j} H(c,k) + t_k`. Takes O(j - c).

        Raises:
            InputError: unless 0 <= c < j <= n.
        """
        if not 0 <= c < j <= self.n:
            raise InputError(
                f"({c}, {j}] is not a segment of a chain of {self.n} stages: it needs 0 <= c < j <= {self.n}"
            )
        held, peak = 0, 0
        for k in range(c + 1, j + 1):
            own = self.s[k - 1] + (self.a[k] if self.o[k - 1] else 0)
            peak = max(peak, held + own + self.t[k - 1])
            reads_next = k < self.n and self.i[k]
            held += self.s[k - 1] + (self.a[k] if self.o[k - 1] or reads_next else 0)
        return peak

    def peak_bytes(self, checkpoints: Iterable[int]) -> int:
        """Peak of a checkpoint set under the revised objective: the checkpoints of finished segments are freed already,
        `max_t( sum_{c in C, c <= c_t} a_c + M(c_t, c_{t+1}) )` with c_0 = 0, the model's input. Takes O(n)."""
        cuts = (0, *self.check_checkpoints(checkpoints), self.n)
        held, peak = 0, 0
        for c, j in pairwise(cuts):
            held += self.a[c]
            peak = max(peak, held + self.segment_peak(c, j))
        return peak

    def first_peak_bytes(self, checkpoints: Iterable[int]) -> int:
        """Peak of a checkpoint set under the first objective: all checkpoints stand during every segment,
        `sum_{c in C} a_c + max_t M(c_t, c_{t+1})`. Never below `peak_bytes`. Takes O(n)."""
        cuts = (0, *self.check_checkpoints(checkpoints), self.n)
        return sum(self.a[c] for c in cuts[:-1]) + max(self.segment_peak(c, j) for c, j in pairwise(cuts))

    def recompute_cost(self, checkpoints: Iterable[int]) -> float:
        """Forward cost of what a checkpoint set runs a second time: every stage up to its last checkpoint."""
        return sum(self.forward[: max(self.check_checkpoints(checkpoints), default=0)])

    @cached_property
    def floor_bytes(self) -> int:
        """No checkpoints and no schedule can peak lower: during the backward of stage k stand the model's input, what
        stage k saved, and its transients: `a_0 + max_k( a_{k-1} [k > 1] i_k + s_k + a_k o_k + t_k )`."""
        most = 0
        for k in range(1, self.n + 1):
            read = self.a[k - 1] if k > 1 and self.i[k - 1] else 0
            most = max(most, read + self.s[k - 1] + (self.a[k] if self.o[k - 1] else 0) + self.t[k - 1])
        return self.a[0] + most

    @property
    def forward_cost(self) -> float:
        """Cost of one plain forward."""
        return sum(self.forward)

    def check_checkpoints(self, checkpoints: Iterable[int]) -> tuple[int, ...]:
        """`checkpoints` as a sorted tuple.

        Raises:
            InputError: if one is not an integer c with 0 < c < n, or given twice.
        """
        out = sorted(_ints("checkpoints", checkpoints))
        for c in out:
            if not 0 < c < self.n:
                raise InputError(
                    f"{c} is not a checkpoint of a chain of {self.n} stages: choose from 1 to {self.n - 1}"
                )
        for c, d in pairwise(out):
            if c == d:
                raise InputError(f"checkpoint {c} is given twice")
        return tuple(out)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": "lowtide.chain",
            "a": self.a,
            "s": self.s,
            "i": [int(x) for x in self.i],
            "o": [int(x) for x in self.o],
            "t": self.t,
            "forward": self.forward,
            "backward": self.backward,
            "names": self.names,
            "ops": self.ops,
        }

    @staticmethod
    def from_json(data: Any) -> Chain:
        """Inverse of `to_json`.

        Raises:
            InputError: if `data` is not a chain, one of another format version, or damaged.
        """
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("kind") != "lowtide.chain":
            raise InputError("this is not a Lowtide chain: no field 'kind' with the value 'lowtide.chain'")
        table = cast("dict[str, Any]", data)
        if table.get("format") != FORMAT:
            raise InputError(f"this chain has format {table.get('format')!r}, this Lowtide reads format {FORMAT}")
        try:
            return Chain(
                a=_ints("a", table["a"]),
                s=_ints("s", table["s"]),
                i=_flags("i", table["i"]),
                o=_flags("o", table["o"]),
                t=_ints("t", table["t"]),
                forward=tuple(table["forward"]),
                backward=tuple(table["backward"]),
                names=tuple(table["names"]),
                ops=tuple((start, stop) for start, stop in table["ops"]),
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as e:
            raise InputError(f"this chain is damaged ({type(e).__name__}: {e}): save it again") from e

    def __repr__(self) -> str:
        from lowtide.units import format_bytes

        saved = sum(self.s) + sum(a for a, o, i in zip(self.a[1:], self.o, (*self.i[1:], False), strict=True) if o or i)
        head = f"Chain of {self.n} stages, input {format_bytes(self.a[0])}, saves {format_bytes(saved)} for backward"
        rows = [f"  {'stage':>7} {'output':>10} {'saved':>10} {'in/out':>6} {'transient':>10}  name"]
        shown = range(1, self.n + 1) if self.n <= 16 else (*range(1, 9), *range(self.n - 6, self.n + 1))
        last = 0
        for k in shown:
            if k != last + 1:
                rows.append(f"  {'...':>7}")
            flags = ("i" if self.i[k - 1] else "-") + ("o" if self.o[k - 1] else "-")
            sizes = (format_bytes(x) for x in (self.a[k], self.s[k - 1]))
            name = self.names[k - 1] if self.names else ""
            columns = (f"{k:>7}", *(f"{x:>10}" for x in sizes), f"{flags:>6}", f"{format_bytes(self.t[k - 1]):>10}")
            rows.append(("  " + " ".join(columns) + "  " + name).rstrip())
            last = k
        return "\n".join((head, *rows))


def _require_length(column: str, length: int, n: int) -> None:
    if length != n:
        raise InputError(
            f"{column} has {length} entries for {n} stages: give one per stage (a has one more, the input)"
        )


def _require_bytes(column: str, values: tuple[int, ...]) -> None:
    if min(values) < 0:
        k = next(k for k, v in enumerate(values) if v < 0)
        raise InputError(f"{column}[{k}] is {values[k]}: a number of bytes cannot be negative")


def _ints(column: str, values: Iterable[Any]) -> tuple[int, ...]:
    """`values` as Python ints; numpy integers and floats without a fraction are welcome."""
    items = tuple(values.tolist() if hasattr(values, "tolist") else values)  # type: ignore[attr-defined]
    if all(type(x) is int for x in items):
        return items
    out: list[int] = []
    for k, x in enumerate(items):
        try:
            whole = int(x)
        except (TypeError, ValueError, OverflowError):
            whole = None
        if whole is None or whole != x or isinstance(x, str):
            raise InputError(f"{column}[{k}] is {x!r}: it must be a whole number")
        out.append(whole)
    return tuple(out)


def _flags(column: str, values: Iterable[Any]) -> tuple[bool, ...]:
    """`values` as bools; 0 and 1 are welcome."""
    items = tuple(values.tolist() if hasattr(values, "tolist") else values)  # type: ignore[attr-defined]
    for k, x in enumerate(items):
        if x not in (0, 1):
            raise InputError(f"{column}[{k}] is {x!r}: it must be 0 or 1")
    return tuple(bool(x) for x in items)
