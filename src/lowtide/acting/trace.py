"""trace: one training step on fake tensors -> `Step`. Nothing of the size of the model or its activations is
allocated.

The step is watched below autograd, where views are resolved and composite ops are taken apart: a dispatch mode sees
every call that writes storage, and saved-tensor hooks see what autograd saves, asks for and lets go. Every saved
tensor is dropped when it is packed. What is then still alive is what no plan can change (DESIGN, section 3).
"""

from __future__ import annotations

import bisect
import contextlib
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lowtide.acting import optimizer as optimizers
from lowtide.acting.accumulate import adds_in_place
from lowtide.acting.codec import index_bytes
from lowtide.acting.contents import Contents
from lowtide.acting.hooks import SavedTensorHooks
from lowtide.acting.known import KnownValues, as_if_real
from lowtide.acting.loss import scalar_loss
from lowtide.acting.ops import (
    OpInfo,
    called,
    held_in,
    is_plain,
    memory_of,
    op_info,
    outputs_in,
    statistics_written,
    storage_key,
    tensors_in,
)
from lowtide.acting.recurrent import with_buffer
from lowtide.acting.sandbox import map_tensors, stand_ins, tensors_of
from lowtide.acting.savers import Savers, plane
from lowtide.acting.traffic import compute_dtype, traffic_bytes
from lowtide.errors import InputError, LowtideError, TraceError
from lowtide.planning.compress import SHAPE
from lowtide.planning.step import Category, Op, Phase, Save, Step, Storage, Value

Loss = Callable[[Any], Tensor]
Progress = Callable[[str, float], None]
Observer = Callable[[OpOverload, tuple[Any, ...], dict[str, Any], Any], None]

# The reason given for ops that a backward inside forward runs (`autograd.grad` in a loss); the tape skips these too.
INNER_BACKWARD = "it ran in a backward inside the forward pass"
_FILLED = "it reads or makes memory that something else than an ATen op has filled"


def in_backward() -> bool:
    """Whether this thread is running an autograd graph task."""
    return torch._C._current_graph_task_id() != -1


class _StorageRecord:
    __slots__ = ("birth", "category", "death", "external", "nbytes", "undefined", "value", "version")

    def __init__(self, nbytes: int, birth: int, external: bool, category: Category) -> None:
        self.nbytes = nbytes
        self.birth = birth
        self.death = -1
        self.external = external
        self.category = category
        self.version = 0
        self.value = -1
        self.undefined = False  # no content that the dispatcher has seen


class _Packed:
    """What autograd holds instead of a saved tensor: where it came from, and nothing of its memory."""

    __slots__ = ("__weakref__", "copy", "recorder", "save", "shape")

    def __init__(self, recorder: Recorder, save: int, tensor: Tensor, copy: Tensor | None) -> None:
        self.recorder = recorder
        self.save = save
        self.copy = copy
        self.shape = (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)

    def __del__(self) -> None:
        self.recorder.released(self.save)


class Recorder(TorchDispatchMode):
    """Writes down one step. Enter it around forward, loss, backward and optimizer; `finish` makes the `Step`."""

    def __init__(self, fake: FakeTensorMode | None, convert: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.fake = fake
        self.convert = convert
        self.phase = Phase.FORWARD
        self.modules: list[str] = [""]
        self.ops: list[dict[str, Any]] = []
        self.op_seq: list[int] = []
        self.values: list[list[int]] = []
        self.storages: list[_StorageRecord] = []
        self.by_key: dict[int, int] = {}
        self.watchers: dict[int, weakref.ref[Any]] = {}
        self.saves: list[dict[str, Any]] = []
        self.savers: Savers[int] = Savers()
        self.places: dict[int, int] = {}  # value of indices -> how many places they tell apart
        # Where memory has contents, something else than ops may change it.
        self.contents = Contents() if fake is None else None
        self.tainted: set[int] = set()
        self.moments: list[int] = []
        self.node_seq: list[int] = []
        self.module_of_seq: dict[int, str] = {}
        self.n_forward = 0
        self.closed = False
        self.observe: Observer | None = None

    # -- storages and values ------------------------------------------------------------------------------------

    def standing(self, t: Tensor, category: Category) -> None:
        """Register memory that was there before the step."""
        for part in memory_of(t):
            self._external(part, category, birth=-1)

    def _external(self, t: Tensor, category: Category, birth: int) -> int:
        key = storage_key(t)
        if key in self.by_key:
            return self.by_key[key]
        sid = self._new_storage(t, key, birth, external=True, category=category)
        self._new_value(sid, op=-1)
        return sid

    def _new_storage(self, t: Tensor, key: int, birth: int, external: bool, category: Category) -> int:
        storage = t.untyped_storage()
        sid = len(self.storages)
        self.storages.append(_StorageRecord(storage.nbytes(), birth, external, category))
        self.by_key[key] = sid

        def died(_: Any) -> None:
            self.storages[sid].death = len(self.moments)
            # The address may serve another storage already.
            if self.by_key.get(key) == sid:
                del self.by_key[key]
            self.watchers.pop(sid, None)

        self.watchers[sid] = weakref.ref(storage, died)
        return sid

    def _new_value(self, sid: int, op: int) -> int:
        record = self.storages[sid]
        if record.value >= 0:
            self.values[record.value][3] = op
            record.version += 1
        record.value = len(self.values)
        self.values.append([sid, record.version, op, -1])
        return record.value

    def _value_of(self, t: Tensor) -> int:
        """The value a tensor looks at; storages never seen are constants that Python made."""
        sid = self.by_key.get(storage_key(t))
        if sid is None:
            real = self.fake is not None and not isinstance(t, FakeTensor)
            sid = self._external(t, Category.INPUT if real else Category.TRANSIENT, -1 if real else len(self.moments))
        return self.storages[sid].value

    # -- ops ----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.phase is Phase.BACKWARD and adds_in_place(func, args, kwargs):
            func = torch.ops.aten.add_.Tensor  # what the engine does when nobody watches
        if self.convert is not None:
            args, kwargs = self._faked(args), {k: self._faked((v,))[0] for k, v in kwargs.items()}
        if self.closed or not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        info = op_info(func)
        if info.passive:
            return func(*args, **kwargs)
        return self._record(func, info, args, kwargs)

    def _faked(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Tensors of the user's own become fake."""
        if all(isinstance(t, FakeTensor) for t in tensors_in(args)):
            return args
        return tuple(
            self._fake_of(a)
            if isinstance(a, Tensor)
            else type(a)(self._fake_of(b) if isinstance(b, Tensor) else b for b in a)  # pyright: ignore[reportUnknownVariableType]
            if isinstance(a, (list, tuple))
            else a
            for a in args
        )

    def _fake_of(self, t: Tensor) -> Tensor:
        """The fake one for a tensor that is not the model's and was not passed in, a target that the loss closes over:
        it stood before the step."""
        if isinstance(t, FakeTensor):
            return t
        assert self.convert is not None
        self.closed, was = True, self.closed  # making it is no part of the step
        try:
            fake = self.convert(t)
        finally:
            self.closed = was
        if is_plain(fake):
            self.standing(fake, Category.INPUT)
        return fake

    def _record(self, func: OpOverload, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        op_id, moment = len(self.ops), len(self.moments)
        statistics = statistics_written(info, args)
        read_args = [a for i, a in enumerate(args) if i not in statistics]
        pinned = self._reason_to_pin(info, args, kwargs)
        read_tensors = [*tensors_in(read_args), *tensors_in(kwargs.values())]
        reads = list(dict.fromkeys(self._value_of(t) for t in held_in(read_tensors)))
        for p in statistics:
            self._value_of(args[p])
        undefined = any(self.storages[self.values[v][0]].undefined for v in reads)
        if self.contents is not None and self.phase is Phase.FORWARD:
            for t in held_in(tensors_in((*args, *kwargs.values()))):
                if self.contents.changed(t):
                    self.tainted.add(self.by_key[storage_key(t)])
        self.moments.append(op_id)
        self.node_seq.append(self._current_seq())
        for save in self.savers.before(func, args):
            self.saves[save]["codec"] = SHAPE
        out = called(func, info, args, kwargs)
        self.savers.after(func, args, out)
        if self.fake is not None:
            out = with_buffer(func, args, out)

        writes: list[int] = []
        inplace: list[tuple[int, int]] = []
        scratch_bytes = 0
        written = [args[p] for p in info.mutates if p < len(args)] + [kwargs[k] for k in info.mutates_kw if k in kwargs]
        for t in held_in(tensors_in(written)):
            sid = self.by_key[storage_key(t)]
            record = self.storages[sid]
            old = record.value
            if self.values[old][2] == op_id:
                continue
            new = self._new_value(sid, op_id)
            writes.append(new)
            inplace.append((old, new))
            if record.undefined:
                whole = info.overwrites and t is args[0] and t.numel() * t.element_size() >= record.nbytes
                record.undefined = not whole
                undefined = undefined and not whole
            if record.external and not pinned:
                pinned = "it writes a tensor that was there before the step"
        for p in statistics:
            sid = self.by_key[storage_key(args[p])]
            scratch_bytes += self.storages[sid].nbytes
            if self.phase is Phase.FORWARD:
                writes.append(self._new_value(sid, op_id))
        if not all(t is None or is_plain(t) for t in outputs_in(out)):
            pinned = pinned or "it makes a tensor that is not a plain strided one"
        for t in held_in(outputs_in(out)):
            key = storage_key(t)
            sid = self.by_key.get(key)
            if sid is None:
                sid = self._new_storage(t, key, moment, external=False, category=Category.TRANSIENT)
                writes.append(self._new_value(sid, op_id))
                self.storages[sid].undefined = info.undefined
        if self.contents is not None and self.phase is Phase.FORWARD:
            touched = [*tensors_in(written), *(args[p] for p in statistics), *outputs_in(out)]
            for t in held_in(touched):
                self.contents.wrote(t)
        if undefined and not info.undefined and not pinned:
            pinned = _FILLED
        places = plane(func, args)
        if places:
            self.places[writes[-1]] = places

        flops = flop_registry.get(func._overloadpacket)
        self.ops.append(
            {
                "name": info.name,
                "phase": self.phase,
                "module": self._module_here(),
                "reads": tuple(reads),
                "writes": tuple(writes),
                "inplace": tuple(inplace),
                "scratch_bytes": scratch_bytes,
                "flops": int(flops(*args, **kwargs, out_val=out)) if flops is not None else 0,
                "moment": moment,
                "pinned": pinned,
                "random": info.random,
                "dtype": compute_dtype(args, kwargs, out),
                "traffic_bytes": traffic_bytes(info, args, kwargs, out),
            }
        )
        if self.observe is not None:
            self.observe(func, args, kwargs, out)
        if self.phase is Phase.FORWARD:
            seq = torch._C._autograd._get_sequence_nr() - 1
            self.op_seq.append(seq)
            self.module_of_seq.setdefault(seq, self.modules[-1])  # later ops may have no node of their own
        return out

    def _reason_to_pin(self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if info.pinned:
            return info.pinned
        if self.phase is Phase.FORWARD and in_backward():
            return INNER_BACKWARD
        for t in [*tensors_in(args), *tensors_in(kwargs.values())]:
            if not is_plain(t):
                return "it reads a tensor that is not a plain strided one"
        return ""

    def _current_seq(self) -> int:
        """Sequence number of the autograd node that is running, or -1."""
        node = torch._C._current_autograd_node()
        return node._sequence_nr() if node is not None else -1

    def _module_here(self) -> str:
        if self.phase is Phase.BACKWARD:
            return self.module_of_seq.get(self._current_seq(), "")
        return self.modules[-1] if self.phase is Phase.FORWARD else ""

    # -- autograd's saved tensors -------------------------------------------------------------------------------

    def pack(self, t: Tensor) -> Any:
        """Drop a saved tensor and remember what it was. External and unusual ones are passed on."""
        if self.convert is not None:
            t = self._fake_of(t)
        if not is_plain(t):
            return t if t.is_leaf else t.detach()
        value = self._value_of(t)
        if self.storages[self.values[value][0]].external:
            return t if t.is_leaf else t.detach()
        save = len(self.saves)
        seq = torch._C._autograd._get_sequence_nr() - 1
        self.saves.append({"value": value, "seq": seq, "uses": [], "release": -1, "op": len(self.ops) - 1, "codec": ""})
        self.saves[save]["codec"] = self._codec(t, value)
        self.savers.waits(storage_key(t), save)
        copy = None
        if self.fake is None:
            self.closed, was = True, self.closed
            copy = t.detach().clone(memory_format=torch.preserve_format)
            self.closed = was
        return _Packed(self, save, t, copy)

    def _codec(self, t: Tensor, value: int) -> str:
        """What is enough of a tensor that is being saved: for its node, or for any node."""
        sign, size = self.savers.sign(storage_key(t)), t.element_size()
        if t.dtype is torch.bool:
            return "bits"
        if value in self.places and t.dtype is torch.int64:
            width = index_bytes(self.places[value])
            return f"index/{width}" if width < size else ""
        if self.storages[self.values[value][0]].nbytes % size:
            return ""
        if sign:
            return f"{sign}/{size}"
        return f"two/{size}" if t.device.type == "cpu" and self._is_noise(value) else ""

    def _is_noise(self, value: int) -> bool:
        """Whether it was drawn and scaled as the noise of dropout is on the CPU."""
        made = self.values[value][2]
        wrote: dict[str, Any] = self.ops[made] if made >= 0 else {"name": ""}
        if wrote["name"] != "aten.div_.Scalar" or not wrote["inplace"]:
            return False
        drawn = self.values[wrote["inplace"][0][0]][2]
        return drawn >= 0 and self.ops[drawn]["name"] == "aten.bernoulli_.float"

    def unpack(self, packed: Any) -> Tensor:
        """Backward asks: stand in a fresh tensor for the time it is held."""
        if not isinstance(packed, _Packed):
            return packed
        save = self.saves[packed.save]
        if not save["uses"]:
            self._follow_writes(save)
        save["uses"].append(len(self.moments))
        self.moments.append(~packed.save)
        self.node_seq.append(self._current_seq())
        shape, stride, dtype, device = packed.shape
        self.closed, was = True, self.closed
        try:
            if packed.copy is not None:
                t = packed.copy.clone(memory_format=torch.preserve_format)
            else:
                t = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        finally:
            self.closed = was
        # Whoever reads the stand-in reads the saved value.
        sid = self.values[save["value"]][0]
        storage, key = t.untyped_storage(), storage_key(t)
        self.by_key[key] = sid
        token = ~len(self.moments)

        def died(_: Any) -> None:
            save["release"] = max(save["release"], len(self.moments))
            if self.by_key.get(key) == sid:
                del self.by_key[key]
            self.watchers.pop(token, None)

        self.watchers[token] = weakref.ref(storage, died)
        return t

    def released(self, save: int) -> None:
        if not self.saves[save]["uses"] and not self.closed:
            self._follow_writes(self.saves[save])
        self.saves[save]["release"] = max(self.saves[save]["release"], len(self.moments))

    def _follow_writes(self, save: dict[str, Any]) -> None:
        """Autograd saves memory, not versions: what was written there since is what backward reads (unless a version
        counter tells on it: then a live backward raises, in any case)."""
        now = self.storages[self.values[save["value"]][0]].value
        if now != save["value"] and (self.phase is Phase.FORWARD or self.values[now][2] < self.n_forward):
            save["value"], save["late"], save["codec"] = now, True, ""

    def forward_is_over(self) -> None:
        self.n_forward = len(self.ops)
        if self.contents is not None:
            self.tainted.update(self.by_key[k] for k in self.contents.changed_keys() if k in self.by_key)

    # -- the end ------------------------------------------------------------------------------------------------

    def finish(self, meta: dict[str, Any]) -> Step:
        """The recorded step as plain data."""
        self.closed = True
        self.watchers.clear()
        for op in self.ops:
            if not op["pinned"] and any(self.values[v][0] in self.tainted for v in (*op["reads"], *op["writes"])):
                op["pinned"] = _FILLED
        n, n_forward = len(self.moments), self.n_forward
        saved_storages = {self.values[s["value"]][0] for s in self.saves}
        storages = tuple(
            Storage(
                nbytes=s.nbytes,
                category=Category.ACTIVATION
                if i in saved_storages and s.category is Category.TRANSIENT
                else s.category,
                birth=s.birth,
                death=n if s.death < 0 or s.birth < 0 else s.death,
                external=s.external,
            )
            for i, s in enumerate(self.storages)
        )
        # In the order they were packed, but for those that were packed before their value was written: a live step
        # packs these as another value, and keeps them.
        order = sorted(range(len(self.saves)), key=lambda i: "late" in self.saves[i])
        place = {old: new for new, old in enumerate(order)}
        saves = tuple(
            Save(
                value=s["value"],
                op=min(bisect.bisect_left(self.op_seq, s["seq"]), n_forward - 1),
                uses=tuple(s["uses"]),
                release=n if s["release"] < 0 else s["release"],
                codec=s["codec"],
            )
            for s in (self.saves[i] for i in order)
        )
        values = tuple(Value(s, k, op, over if over < n_forward else -1) for s, k, op, over in self.values)
        return Step(
            ops=tuple(Op(**op) for op in self.ops),
            values=values,
            storages=storages,
            saves=saves,
            moments=tuple(m if m >= 0 else ~place[~m] for m in self.moments),
            positions=self._positions(n_forward),
            n_forward=n_forward,
            meta=meta,
        )

    def _positions(self, n_forward: int) -> tuple[int, ...]:
        positions: list[int] = []
        here = n_forward - 1
        for moment, seq in zip(self.moments, self.node_seq, strict=True):
            op = self.ops[moment] if moment >= 0 else None
            if op is not None and op["phase"] is Phase.FORWARD:
                positions.append(moment)
            elif op is not None and op["phase"] is Phase.OPTIMIZER:
                positions.append(-1)
            else:
                inner = len(positions) < len(self.moments) and not self._backward_began(len(positions))
                at = bisect.bisect_left(self.op_seq, seq)
                if seq >= 0 and at < n_forward and not inner:
                    here = min(here, at)
                positions.append(here)
        return tuple(positions)

    def _backward_began(self, moment: int) -> bool:
        return moment >= self.first_backward_moment

    first_backward_moment = 0


@contextlib.contextmanager
def _module_names(model: nn.Module, stack: list[str]) -> Generator[None]:
    """While inside, stack[-1] is the path of the module whose forward is running."""
    names = {id(m): name for name, m in model.named_modules()}

    def enter(module: nn.Module, _: Any) -> None:
        stack.append(names.get(id(module), stack[-1]))

    def leave(module: nn.Module, *_: Any) -> None:
        if len(stack) > 1:
            stack.pop()

    hooks = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for h in hooks:
            h.remove()


def _trace_device(t: Tensor) -> torch.device:
    return torch.device("cpu") if t.device.type == "meta" else t.device


class _StandIns:
    """One stand-in per tensor; views of one storage stay views of one storage. `whole` makes the storage."""

    def __init__(self, mode: FakeTensorMode | None) -> None:
        self.mode = mode
        self.done: dict[int, Tensor] = {}
        self.bases: dict[int, Tensor] = {}
        self.alive: list[Tensor] = []

    def __call__(self, t: Tensor) -> Tensor:
        if self.mode is not None and isinstance(t, FakeTensor):
            return t
        if id(t) in self.done:
            return self.done[id(t)]
        self.alive.append(t)
        with self.mode or contextlib.nullcontext():
            if is_plain(t) and type(t) in (Tensor, nn.Parameter):
                made = self._plain(t)
            else:
                made = self._odd(t)
        self.done[id(t)] = made
        if t.is_leaf and t.grad is not None:
            made.grad = self(t.grad)
        return made

    def _plain(self, t: Tensor) -> Tensor:
        key = storage_key(t)
        with torch.no_grad():
            base = self.bases.get(key)
            if base is None:
                base = self.bases[key] = self.whole(t)
            made = torch.empty(0, dtype=t.dtype, device=base.device)
            made.set_(base.untyped_storage(), t.storage_offset(), t.shape, t.stride())
        if isinstance(t, nn.Parameter):
            return nn.Parameter(made, requires_grad=t.requires_grad)
        return made.requires_grad_(t.requires_grad)

    def _odd(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def whole(self, t: Tensor) -> Tensor:
        """A tensor with a storage as large as that of `t`."""
        raise NotImplementedError


class _Fakes(_StandIns):
    """Stand-ins that have no memory."""

    def whole(self, t: Tensor) -> Tensor:
        return torch.empty(t.untyped_storage().nbytes(), dtype=torch.uint8, device=_trace_device(t))

    def _odd(self, t: Tensor) -> Tensor:
        assert self.mode is not None
        return self.mode.from_tensor(t)


class _Copies(_StandIns):
    """Stand-ins with contents, for steps that look at values. What the step writes to, it writes to a copy."""

    def whole(self, t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        base = torch.empty(storage.nbytes(), dtype=torch.uint8, device=t.device)
        base.untyped_storage().copy_(storage)
        return base

    def _odd(self, t: Tensor) -> Tensor:
        copy = t.detach().clone().requires_grad_(t.requires_grad)
        return nn.Parameter(copy, t.requires_grad) if isinstance(t, nn.Parameter) else copy


def trace(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: Any = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> Step:
    """Trace one training step of `model(*args, **kwargs)`, its loss, backward and optionally the optimizer.

    Args:
        model: any module, on any device; parameters and inputs on `meta` are traced as on the CPU. It is left as it
            was found: parameters, gradients, buffers, attributes, random generators.
        args, kwargs: what the model is called with. Steps that cannot run on fake tensors (they look at values, or
            hand memory to something that is not PyTorch) are run once for real, on copies, with every saved tensor
            in memory; `meta["real"]` then says why.
        loss: output -> tensor with one element. By default the output itself if it is a scalar, its `.loss` if it
            has one, else the sum of its floating point tensors.
        optimizer: adds its state and its step: an optimizer over the model's parameters, a callable that makes one
            from a list of parameters, or the name of a `torch.optim` class.
        progress: called with a word and a fraction in [0, 1].
        observe: called with (op, args, kwargs, output) for each op of the step, in order; the tensors are fake, and
            must not be held. If it has a method `begin`, that is called before the first op, and again if the step
            has to be run for real.

    Returns:
        The step. All its bytes are exact sizes of storages; kernels' own workspace is not in it.

    Raises:
        TraceError: if the step cannot be traced; the message says where and why.
        InputError: if there is nothing to train, or the loss is no scalar.
    """
    kwargs = dict(kwargs or {})
    args = tuple(args)
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"lowtide traces an nn.Module, not {type(model).__name__}")
    report = progress or (lambda *_: None)
    report("trace", 0.0)
    started = time.perf_counter()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = _Fakes(mode)
    try:
        step = _run(model, args, kwargs, loss, optimizer, _recorder(mode, fakes, observe), mode, fakes)
    except (DataDependentOutputException, DynamicOutputShapeException, TraceError) as e:
        looks = not isinstance(e, TraceError)
        reason = f"the step looks at values ({e.func})" if looks else str(e)  # pyright: ignore[reportAttributeAccessIssue]
        if any(t.device.type == "meta" for t in [*model.parameters(), *model.buffers(), *tensors_of((args, kwargs))]):
            if not looks:
                raise
            raise TraceError(
                f"{reason}, which tensors on 'meta' do not have: build the model and its inputs on a real device"
            ) from e
        step = _run(model, args, kwargs, loss, optimizer, _recorder(None, None, observe), None, _Copies(None))
        step.meta["real"] = reason
    step.meta["trace_s"] = round(time.perf_counter() - started, 3)
    report("trace", 1.0)
    return step


def _recorder(
    mode: FakeTensorMode | None, convert: Callable[[Tensor], Tensor] | None, observe: Observer | None
) -> Recorder:
    """A recorder whose ops `observe` sees. A step that must be run for real after all begins anew."""
    recorder = Recorder(mode, convert)
    recorder.observe = observe
    begin = getattr(observe, "begin", None)
    if begin is not None:
        begin()
    return recorder


def _run(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    loss: Loss | None,
    optimizer: Any,
    recorder: Recorder,
    mode: FakeTensorMode | None,
    convert: Callable[[Tensor], Tensor],
) -> Step:
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(stand_ins(model, convert))
        given = tensors_of((args, kwargs))
        for t in given:
            if id(t) not in table:
                table[id(t)] = convert(t)
        fake_args, fake_kwargs = map_tensors((args, kwargs), lambda t: table[id(t)])
        parameters = [p for p in model.parameters() if p.requires_grad]
        _register(recorder, model, [table[id(t)] for t in given])
        if not parameters and not any(t.requires_grad for t in given):
            raise InputError("there is nothing to train: no parameter and no input requires a gradient")
        if mode is not None:
            known = KnownValues()
            for t in given:
                known.learn(table[id(t)], t)
            stack.enter_context(mode)
            stack.enter_context(known)
            stack.enter_context(as_if_real())
        stepper = None
        if optimizer is not None:
            stepper = optimizers.prepare(optimizer, model, table)
            for t in stepper.state_tensors():
                recorder.standing(t, Category.OPTIMIZER)
        stack.enter_context(recorder)
        stack.enter_context(_module_names(model, recorder.modules))
        stack.enter_context(torch.enable_grad())
        with SavedTensorHooks(recorder.pack, recorder.unpack):
            scalar = _forward(model, fake_args, fake_kwargs, loss, recorder)
        if not scalar.requires_grad:
            raise InputError(
                "the loss does not depend on anything that requires a gradient: there is no backward to plan"
            )
        recorder.forward_is_over()
        recorder.phase = Phase.BACKWARD
        recorder.first_backward_moment = len(recorder.moments)
        _explained("backward", recorder, scalar.backward)
        for p in [*parameters, *(table[id(t)] for t in given)]:
            for g in held_in([p.grad]):
                if storage_key(g) in recorder.by_key:
                    recorder.storages[recorder.by_key[storage_key(g)]].category = Category.GRADIENT
        del scalar
        if stepper is not None:
            recorder.phase = Phase.OPTIMIZER
            _explained("the optimizer", recorder, stepper.step)
        return recorder.finish(_meta(model, args, kwargs, optimizer))


def _register(recorder: Recorder, model: nn.Module, inputs: list[Tensor]) -> None:
    for p in model.parameters():
        recorder.standing(p, Category.PARAMETER)
    for b in model.buffers():
        recorder.standing(b, Category.BUFFER)
    for t in inputs:
        recorder.standing(t, Category.INPUT)
    for t in [*model.parameters(), *inputs]:
        if t.is_leaf and t.grad is not None:
            recorder.standing(t.grad, Category.GRADIENT)


def _forward(model: nn.Module, args: Any, kwargs: Any, loss: Loss | None, recorder: Recorder) -> Tensor:
    return _explained("forward", recorder, lambda: scalar_loss(model(*args, **kwargs), loss))


def _explained(what: str, recorder: Recorder, run: Callable[[], Any]) -> Any:
    """Run a part of the step; say where it failed if it fails."""
    try:
        return run()
    except (DataDependentOutputException, DynamicOutputShapeException, LowtideError):
        raise
    except Exception as e:
        where = recorder.modules[-1] or "the model or the loss"
        text = str(e).strip().splitlines()
        raise TraceError(f"{what} failed in {where}: {type(e).__name__}: {text[0] if text else ''}") from e


def _meta(model: nn.Module, args: Any, kwargs: Any, optimizer: Any) -> dict[str, Any]:
    def shape(t: Tensor) -> str:
        return f"{'x'.join(map(str, t.shape)) or 'scalar'}:{str(t.dtype).removeprefix('torch.')}"

    first = next(iter(model.parameters()), None)
    return {
        "model": type(model).__name__,
        "inputs": [shape(t) for t in tensors_of(args)]
        + [f"{k}={shape(t)}" for k, v in kwargs.items() for t in tensors_of(v)],
        "device": str(_trace_device(first)) if first is not None else "cpu",
        "dtype": str(first.dtype).removeprefix("torch.") if first is not None else "",
        "parameters": sum(p.numel() for p in model.parameters()),
        "optimizer": optimizers.describe(optimizer),
        "torch": torch.__version__,
    }
