"""One live op that can be run again: what it was called with, and where its outputs go.

A `Slot` is a live value: one version of one storage. A `Record` is an op that read and wrote slots. Tensors in a
record's arguments are `Ref`s, slot plus geometry, so that a record holds no memory of its own.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import weakref
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore

from lowtide.acting import ambient
from lowtide.acting.codec import Codec, whole_of
from lowtide.acting.ops import outputs_in
from lowtide.errors import ReplayError

# Kept out of recomputation: autocast, which has cast already in forward, and the transforms of `torch.func`, which
# backward may run under (`is_grads_batched`).
_ABOVE: Any = functools.reduce(
    operator.or_,
    (
        torch._C.DispatchKeySet(torch._C._dispatch_key_parse(key))
        for key in (
            "AutocastCPU",
            "AutocastCUDA",
            "FuncTorchDynamicLayerFrontMode",
            "FuncTorchDynamicLayerBackMode",
            "FuncTorchVmapMode",
            "VmapMode",
        )
    ),
)


class Slot:
    """A live value.

    Attributes:
        tensor: any tensor on its storage while the value is at hand, else None.
        op: id of the tape's record that can make it again, -1 if there is none.
        external: no op that the tape follows wrote it: a parameter, an input, a tensor that Python made.
        held: the tape holds it from forward on, as a source for recomputation.
        version: for external and held slots, the version counter of `tensor` when the forward pass was over.
        drop: the plan wants it dropped where it can be.
        saves: ids of the plan's saves of this value, in the order autograd packs them.
        packed: how many were packed.
        pending: handles that backward has not let go of.
        temporary: it was recomputed on demand, outside the plan's lists.
        nbytes: size of its storage.
        handles: weak references to those of autograd's handles that stand for this value, until it is overwritten.
        code: what is held in its place for backward, a value of its own; None if nothing is.
        codec: of a slot for a code: what makes it.
        made: the code that was made in forward and is kept, while a handle holds it.
    """

    __slots__ = (
        "code", "codec", "drop", "external", "handles", "held", "made", "nbytes", "op", "packed", "pending", "saves",
        "temporary", "tensor", "value", "version",
    )  # fmt: skip

    def __init__(self, value: int = -1) -> None:
        self.value = value
        self.tensor: Tensor | None = None
        self.op = -1
        self.external = False
        self.held = False
        self.version = -1
        self.drop = False
        self.saves: tuple[int, ...] = ()
        self.packed = 0
        self.pending = 0
        self.temporary = False
        self.nbytes = 0
        self.handles: list[Any] = []
        self.code: Slot | None = None
        self.codec: Codec | None = None
        self.made: weakref.ref[Tensor] | None = None

    @property
    def certain(self) -> bool:
        """Whether the value can be had again whatever happens: it stands, is held, or its op can be run again."""
        return self.held or self.external or self.op >= 0


class Ref:
    """A tensor argument: a view of a slot's storage."""

    __slots__ = ("dtype", "offset", "size", "slot", "stride")

    def __init__(self, slot: Slot, t: Tensor) -> None:
        self.slot = slot
        self.size = t.size()
        self.stride = t.stride()
        self.offset = t.storage_offset()
        self.dtype = t.dtype

    def on(self, base: Tensor) -> Tensor:
        """The tensor, on the storage of `base`."""
        if base.dtype == self.dtype:
            return base.as_strided(self.size, self.stride, self.offset)
        view = torch.empty(0, dtype=self.dtype, device=base.device)
        return view.set_(base.untyped_storage(), self.offset, self.size, self.stride)


class Scratch:
    """A tensor argument whose content does not matter and which the op writes to: statistics of a batch norm."""

    __slots__ = ("device", "dtype", "size")

    def __init__(self, t: Tensor) -> None:
        self.size, self.dtype, self.device = t.size(), t.dtype, t.device

    def make(self) -> Tensor:
        return torch.zeros(self.size, dtype=self.dtype, device=self.device)


_INPLACE_OR_VIEW = torch._C.DispatchKey.ADInplaceOrView


def alias(t: Tensor) -> Tensor:
    """A tensor on the same storage with the same version counter, and no history.

    Inside a dispatch mode a plain `detach` would start a version counter of its own, and a change between forward and
    backward would go unseen."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(_INPLACE_OR_VIEW)
    torch._C._dispatch_tls_set_dispatch_key_excluded(_INPLACE_OR_VIEW, False)
    try:
        return t.detach()
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_INPLACE_OR_VIEW, excluded)


def version_of(t: Tensor) -> int:
    """The tensor's version counter; inference tensors have none."""
    return -1 if t.is_inference() else t._version


def copy_of(t: Tensor) -> Tensor:
    """A tensor on a copy of the whole storage of `t`."""
    if type(t) is FakeTensor:  # its mode never lets go of a storage that was given to `set_`
        return whole_of(t).clone()
    storage = t.untyped_storage().clone()
    whole = torch.empty(0, dtype=t.dtype, device=t.device)
    return whole.set_(storage, 0, (storage.nbytes() // max(whole.element_size(), 1),), (1,))


def _holders(t: Tensor) -> int:
    """References to the storage of `t`; up to torch 2.9 this question is not one of them, later it is."""
    return torch._C._storage_Use_Count(t.untyped_storage()._cdata)


def _holders_of_one() -> int:
    """What `_holders` says of a storage that one tensor alone is on."""
    with _disable_current_modes():
        return _holders(torch.ones(1, device="cpu"))


_ALONE = _holders_of_one()


def _is_alone(t: Tensor) -> bool:
    """Whether nobody else has a tensor on the storage of `t`."""
    return _holders(t) <= _ALONE


class Record:
    """An op of the live forward pass, ready to be run again. It refers to slots, and slots to it by number only, so
    that no cycle keeps them.

    Attributes:
        index: its place in the live op stream: reads come from records with smaller ones.
        args, kwargs: as called, tensors replaced by `Ref` or `Scratch`; lists of tensors by lists of those.
        inplace: pairs (old slot, new slot) on one storage.
        outs: pairs (position in the flattened outputs, slot) of outputs that have a storage of their own.
        codes: pairs (slot, slot of its code) of what it writes.
        generator: the generator it drew from and that one's state before, for random ops.
        settings: what was set globally when it ran.
    """

    __slots__ = (
        "args", "codes", "func", "generator", "index", "inplace", "kwargs", "outs", "reads", "settings", "where",
    )  # fmt: skip

    def __init__(self, index: int, func: OpOverload, where: str) -> None:
        self.index = index
        self.func = func
        self.where = where
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.reads: list[Slot] = []
        self.inplace: list[tuple[Slot, Slot]] = []
        self.outs: list[tuple[int, Slot]] = []
        self.codes: list[tuple[Slot, Slot]] = []
        self.generator: tuple[torch.Generator, Tensor] | None = None
        self.settings = ambient.settings()

    def written(self) -> list[Slot]:
        return [s for _, s in self.inplace] + [s for _, s in self.outs]

    def made(self) -> list[Slot]:
        """What it writes, and the codes of that."""
        return self.written() + [c for _, c in self.codes]

    def run(self, consume: Collection[Slot] = (), codes: Collection[Slot] = ()) -> None:
        """Run the op again; its outputs' slots get tensors, unless they have some already. If it fails, none does.

        Args:
            consume: old versions whose storage the op may take over, if nobody else looks at it. Others are copied.
            codes: slots of codes that are to be made, too.

        Raises:
            ReplayError: if a parameter or an input was changed since forward, or an output comes out with another size.
        """
        bases: dict[int, Tensor] = {}
        for old, _ in self.inplace:
            if old in consume and old.tensor is not None and _is_alone(old.tensor):
                bases[id(old)], old.tensor = old.tensor, None
            else:
                bases[id(old)] = copy_of(self._at_hand(old))
        args = [self._rebuilt(a, bases) for a in self.args]
        kwargs = {k: self._rebuilt(a, bases) for k, a in self.kwargs.items()}
        with ambient.under(self.settings), as_drawn(self.generator):
            out = self.func(*args, **kwargs)
        made = [(new, bases[id(old)]) for old, new in self.inplace]
        if self.outs:
            flat = outputs_in(out)
            made += [(slot, self._checked(flat[position], slot)) for position, slot in self.outs]
        for slot, t in made:
            if slot.tensor is None:
                slot.tensor = t
        for slot, code in self.codes:
            if code in codes and code.tensor is None:
                assert slot.tensor is not None
                assert code.codec is not None
                code.tensor = code.codec.encode(whole_of(slot.tensor))

    def _checked(self, t: Tensor | None, slot: Slot) -> Tensor:
        if t is None or t.untyped_storage().nbytes() != slot.nbytes:
            got = "nothing" if t is None else f"{t.untyped_storage().nbytes()} bytes"
            raise ReplayError(
                f"recomputing {self.func} in {self.where or 'the model'} gave {got} where forward gave {slot.nbytes} "
                "bytes: a tensor it reads has changed since forward"
            )
        return t

    def _at_hand(self, slot: Slot) -> Tensor:
        """The slot's tensor, as it was in forward."""
        t = slot.tensor
        if t is None:
            raise ReplayError(
                f"{self.func} in {self.where or 'the model'} needs a value that is gone: please report it"
            )
        if slot.version >= 0 and version_of(t) != slot.version:
            raise ReplayError(changed(t, slot.version, f"recomputing {self.func} in {self.where or 'the model'}"))
        return t

    def _rebuilt(self, a: Any, bases: dict[int, Tensor]) -> Any:
        kind = type(a)
        if kind is Ref:
            slot = a.slot
            base = bases.get(id(slot))
            return a.on(self._at_hand(slot) if base is None else base)
        if kind is Scratch:
            return a.make()
        if kind is list or kind is tuple:
            return [self._rebuilt(b, bases) for b in a]
        return a


class Geometry(Protocol):
    """What a message about a tensor that is not there wants to know of it."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def size(self) -> Sequence[int]: ...


def changed(t: Tensor, version: int, doing: str, ref: Geometry | None = None) -> str:
    """The sentence for a tensor that was modified before backward; `ref` tells its shape if `t` does not."""
    dtype, shape = (t.dtype, t.shape) if ref is None else (ref.dtype, ref.size)
    return (
        f"{doing}: one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"a {dtype} tensor of shape {list(shape)} is at version {t._version}, expected version {version}; "
        "change it after backward, or keep a copy"
    )


@contextlib.contextmanager
def below_autograd() -> Any:
    """Where recomputation runs: nothing is recorded by autograd, nothing is cast or transformed again."""
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(_ABOVE):
        yield


def generator_of(args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device) -> torch.Generator | None:
    """The generator a random op draws from, or None where its device has none that we know."""
    explicit = kwargs.get("generator")
    if explicit is None:
        explicit = next((a for a in args if isinstance(a, torch.Generator)), None)
    if explicit is not None:
        return explicit
    if device.type == "cpu":
        return torch.default_generator
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        return torch.cuda.default_generators[index]
    return None


# Held while a generator is looked at and drawn from, in forward and in replays: threads share generators.
drawing = threading.RLock()


@contextlib.contextmanager
def as_drawn(generator: tuple[torch.Generator, Tensor] | None) -> Any:
    """With the generator as it was in forward; afterwards as it is now."""
    if generator is None:
        yield
        return
    source, then = generator
    with drawing:
        now = source.get_state()
        source.set_state(then)
        try:
            yield
        finally:
            source.set_state(now)
