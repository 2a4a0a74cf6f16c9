"""replay: a live forward and its backward under a plan. The user's Python runs once.

In forward, a dispatch mode below autograd follows the op stream along the plan's table and writes down the calls that
will be run again; `pack` drops what the plan drops. In backward, `unpack` runs the plan's list for that point and
hands out the result; memory is let go at its last use.

The plan is advice, the live records are the truth: a value is dropped only if this very tape has the records to
rebuild it (`Slot.certain`), whatever the plan believes. Two rules make backward safe in any order:

* While backward follows the plan's order, the plan's releases are carried out. The plan was checked, so from the
  state it has reached every later unpack can be answered by running the lists in between, that is, everything still
  pending can be rebuilt from what is at hand.
* At the first deviation releases stop. The state stays such that everything pending can be rebuilt, and it is, on
  demand. The same holds while a graph is retained, since what was handed out may be asked for again.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from lowtide.acting.codec import Codec, elements_of, whole_of
from lowtide.acting.coded import NOTHING, Coded, Shape, only_in_backward, witness_of
from lowtide.acting.hooks import SavedTensorHooks
from lowtide.acting.ops import (
    OpInfo,
    called,
    held_in,
    is_plain,
    is_wrapper,
    op_info,
    outputs_in,
    statistics_written,
    storage_key,
    tensors_in,
)
from lowtide.acting.record import (
    Record,
    Ref,
    Scratch,
    Slot,
    alias,
    below_autograd,
    changed,
    copy_of,
    drawing,
    generator_of,
    version_of,
)
from lowtide.acting.savers import Savers, plane
from lowtide.acting.stream import Stream
from lowtide.acting.table import Coding, Entry, Table
from lowtide.acting.unwatched import StepsAside
from lowtide.errors import ReplayError
from lowtide.planning.schedule import Action

_graph_task_id: Callable[[], int] = torch._C._current_graph_task_id
_graph_is_retained: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph


class Kept:
    """What autograd holds for a saved tensor that stays: an alias, and the version it had. If only the `shape` is
    needed, the alias has no memory."""

    __slots__ = ("__weakref__", "shape", "tensor", "version")

    def __init__(self, tensor: Tensor, version: int) -> None:
        self.tensor = tensor
        self.version = version
        self.shape: Shape | None = None

    def forget(self) -> None:
        """Hold the shape alone."""
        self.shape = Shape(self.tensor)
        witness, _ = witness_of(self.tensor)
        if witness is None:
            self.version = -1
        self.tensor = NOTHING if witness is None else witness


class Dropped:
    """What autograd holds for a saved tensor that was dropped: where to have it from.

    Attributes:
        ref: the value and the geometry.
        save: the plan's name for it.
        witness: a tensor without memory that shares the version counter of the dropped one. None for tensors that have
            no content anyway (fake, meta).
        version: what that counter showed when it was dropped.
        unpacked: how often it was asked for.
        tensor: what it was answered with, from then until the node lets go, as autograd itself does.
        codec: for a tensor that is made from a code, which is what `ref` refers to; else None.
        code: that code, while `tensor` is held.
    """

    __slots__ = (
        "__weakref__", "code", "codec", "n", "ref", "save", "tape", "tensor", "unpacked", "version", "witness",
    )  # fmt: skip

    def __init__(self, tape: Tape, ref: Ref, save: int, t: Tensor, codec: Codec | None = None) -> None:
        self.tape = tape
        self.ref = ref
        self.save = save
        self.unpacked = 0
        self.tensor: Tensor | None = None
        self.witness, self.version = witness_of(t, inside=False)
        self.codec, self.code, self.n = codec, None, 0 if codec is None else elements_of(t)
        ref.slot.pending += 1
        ref.slot.handles.append(weakref.ref(self))

    def __del__(self) -> None:
        slot = self.ref.slot
        slot.pending -= 1
        self.tape.packed_saves.discard(self.save)
        if slot.pending == 0 and slot.temporary:
            slot.tensor = None


class Tape:
    """The records of one forward pass, and the state of its backward. Held by the handles that autograd holds."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.slots: dict[int, Slot] = {}
        self.records: dict[int, Record] = {}
        self.packed_saves: set[int] = set()
        self.complete = False  # every forward op has been seen, or the region was left
        self.cursor = 0
        self.deviated = False
        self.consumed = False  # a source was let go: what was handed out may not be rebuilt from the start again
        self.task = -1
        self.busy = False
        self.recomputed_ops = 0
        self.lock = threading.RLock()  # backward of several devices runs on several threads

    # -- backward -----------------------------------------------------------------------------------------------

    def unpack(self, handle: Dropped) -> Tensor:
        """The dropped tensor of `handle`."""
        if handle.witness is not None and handle.witness._version != handle.version:
            raise RuntimeError(changed(handle.witness, handle.version, "backward", handle.ref))
        with self.lock:
            if handle.tensor is not None:
                return handle.tensor
            self.busy = True
            try:
                with below_autograd():
                    return self._answer(handle)
            except BaseException:
                self.deviated = True  # a list was cut short
                raise
            finally:
                self.busy = False

    def _answer(self, handle: Dropped) -> Tensor:
        task = _graph_task_id()
        final = task != -1 and self.complete and not _graph_is_retained()
        slot = handle.ref.slot
        self._enter_task(task)
        events = self.table.events_of.get(handle.save, ())
        event = events[handle.unpacked] if handle.unpacked < len(events) else -1
        handle.unpacked += 1
        ends = False
        if self._in_order(event):
            self._follow(event, final)
            ends = self.table.schedule.events[event].ends_hold
        if slot.tensor is None:
            self._demand(slot)
        assert slot.tensor is not None
        if handle.codec is None:
            t = handle.ref.on(slot.tensor)
        else:
            if handle.codec.is_sign:
                only_in_backward()
            t = handle.ref.on(handle.codec.decode(slot.tensor, handle.n))
        if final:
            handle.tensor = t
            handle.code = None if handle.codec is None else slot.tensor
        if ends or (slot.temporary and (final and slot.pending == 1)):
            slot.tensor = None
        return t

    def _enter_task(self, task: int) -> None:
        """A new backward pass starts the plan again, unless an earlier one has used its sources up."""
        if task == self.task:
            return
        self.task = task
        if not self.consumed:
            self.cursor = 0
            self.deviated = False

    def _in_order(self, event: int) -> bool:
        """Whether `event` is the next of the plan's that can come in this backward."""
        if self.deviated or event < self.cursor:
            self.deviated = True
            return False
        events, packed = self.table.schedule.events, self.packed_saves
        for i in range(self.cursor, event):
            if events[i].save in packed:
                self.deviated = True
                return False
        return True

    def _follow(self, event: int, final: bool) -> None:
        """Carry out the plan's lists up to `event`. Lists of points that cannot come, because their op was not part
        of this forward, are carried out too: later ones may build on them."""
        events = self.table.schedule.events
        while self.cursor <= event:
            for action in events[self.cursor].actions:
                self._act(action, final)
            self.cursor += 1

    def _act(self, action: Action, final: bool) -> None:
        record = self.records.get(action.op)
        if record is None:  # not part of this forward
            return
        for slot in record.reads:
            if slot.tensor is None:
                self._demand(slot)
        byproducts = [s for s in record.written() if s.tensor is None and s.value not in action.retain]
        codes = [c for _, c in record.codes if c.pending and c.value in action.retain]
        record.run([self.slots[v] for v in action.consume if v in self.slots], codes)
        self.recomputed_ops += 1
        for slot in byproducts:
            slot.tensor = None
        for v in action.free:
            slot = self.slots.get(v)
            if slot is not None and (final or not slot.held):
                slot.tensor = None
                self.consumed = self.consumed or slot.held

    def _demand(self, target: Slot) -> None:
        """Rebuild one value from what is at hand, outside the plan's lists."""
        needed: dict[int, Record] = {}
        todo = [target]
        while todo:
            slot = todo.pop()
            if slot.tensor is not None:
                continue
            record = self.records.get(slot.op)
            if record is None:
                raise ReplayError(
                    "a dropped activation cannot be rebuilt: what it is made from was let go in an earlier backward; "
                    "pass retain_graph=True to all backward calls but the last"
                )
            if record.index not in needed:
                needed[record.index] = record
                todo.extend(record.reads)
        had = {id(s) for r in needed.values() for s in r.made() if s.tensor is not None}
        for index in sorted(needed):
            needed[index].run(codes=[c for _, c in needed[index].codes if c.pending or c is target])
            self.recomputed_ops += 1
        for record in needed.values():
            for slot in record.made():
                if id(slot) in had or slot is target:
                    continue
                if slot.pending == 0:
                    slot.tensor = None
                else:
                    slot.temporary = True
        target.temporary = not target.held


class Region(StepsAside):
    """Records one forward pass on a tape. Enter it with `hooks()` around the forward."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self.tape = Tape(table)
        self.stream = Stream(table)
        self.index = 0
        self.by_key: dict[int, Slot] = {}
        self.places = 0  # that the indices of the last pool tell apart
        self.undefined: set[int] = set()  # storages without content so far
        self.gathered: set[int] = set()  # storages that collectives fill: whoever shards them may let go of them
        self.standing: list[Slot] = []  # external and held: they must stay as they are until backward
        self.savers: Savers[weakref.ref[Kept]] | None = Savers() if table.coded or table.shapes else None
        self.guards: list[Any] = []  # weak references that keep storage addresses from being used again
        self.away = False  # a backward runs that this mode does not see

    def hooks(self) -> SavedTensorHooks:
        return SavedTensorHooks(self.pack, self.unpack)

    def close(self) -> None:
        """Forward is over: forget addresses. The tape lives on in autograd's handles."""
        self.stream.close()
        self._seal()
        self.by_key.clear()
        self.undefined.clear()
        self.gathered.clear()
        for ref in self.guards:
            torch.UntypedStorage._free_weak_ref(ref)
        self.guards.clear()

    def _seal(self) -> None:
        """Note the versions of all that must stay as it is. Until here the mode sees every write."""
        self.tape.complete = True
        for slot in self.standing:
            if slot.tensor is not None:
                slot.version = version_of(slot.tensor)
        self.standing.clear()

    def aside(self) -> None:
        self.away = True
        for slot in self.standing:
            if slot.tensor is not None:
                slot.version = version_of(slot.tensor)

    def back(self) -> None:
        """A backward has run. What it has written to shows in version counters, which whoever stands and is held has:
        nothing later is recomputed from these, and what was to be raises. Of all others it cannot be told."""
        self.away = False
        same = [s for s in self.standing if s.tensor is not None and version_of(s.tensor) == s.version]
        for slot in same:
            slot.version = -1
        self.standing = same
        ids = set(map(id, same))
        self.by_key = {key: slot for key, slot in self.by_key.items() if id(slot) in ids}

    # -- saved tensors ------------------------------------------------------------------------------------------

    def pack(self, t: Tensor) -> Any:
        seen = not self.away and is_plain(t)
        sign = self.savers.sign(storage_key(t) if seen else -1) if self.savers is not None else ""
        if self.by_key and seen:
            slot = self.by_key.get(storage_key(t))
            # Saves that the plan does not know of are kept: it may let go too early of what they would be made from.
            if slot is not None and slot.packed < len(slot.saves):
                save = slot.saves[slot.packed]
                if save in self.table.shapes:
                    slot.packed += 1
                elif slot.code is not None:
                    handle = self._coded(slot, slot.code, save, t, sign)
                    if handle is not None:
                        slot.packed += 1
                        slot.handles.append(weakref.ref(handle))
                        return handle
                elif slot.drop and slot.op >= 0:
                    slot.packed += 1
                    self.tape.packed_saves.add(save)
                    return Dropped(self.tape, Ref(slot, t), save, t)
        kept = self._kept(t)
        if self.savers is not None and seen and not t.is_leaf:
            self.savers.waits(storage_key(t), weakref.ref(kept))
        return kept

    def _kept(self, t: Tensor) -> Kept:
        if t.is_leaf:
            return Kept(t, t._version if not t.is_inference() else -1)
        # An alias, since a node that holds its own output would never be freed.
        if is_wrapper(t) or type(t) is FakeTensor:  # below their dispatch there is another tensor
            return Kept(t.detach(), -1)
        with torch._C._DisableTorchDispatch():
            return Kept(t.detach(), version_of(t))

    def _coded(self, slot: Slot, code: Slot, save: int, t: Tensor, sign: str) -> Dropped | Coded | None:
        """A handle for the code of a value, or None if the code is not enough for who saves it now."""
        codec = code.codec
        if codec is None or codec.dtype != t.dtype or (codec.is_sign and sign != codec.name):
            return None
        if codec.name == "index" and not codec.places:
            return None
        made = code.made() if code.made is not None else None
        drops = code.drop and code.op >= 0
        if made is None and (not drops or codec.name == "two"):
            self.tape.busy, was = True, self.tape.busy
            try:
                with below_autograd():
                    made = codec.encode(whole_of(t))
            finally:
                self.tape.busy = was
            if made is None:  # it is not what it seems to be
                slot.code = None
                return None
        if drops:
            self.tape.packed_saves.add(save)
            return Dropped(self.tape, Ref(code, t), save, t, codec)
        assert made is not None
        code.made = weakref.ref(made)
        return Coded(self.tape, codec, made, Ref(code, t), t)

    @staticmethod
    def unpack(handle: Any) -> Tensor:
        if type(handle) is Kept:
            t = handle.tensor
            if handle.version >= 0 and t._version != handle.version:
                raise RuntimeError(changed(t, handle.version, "backward", handle.shape))
            return t if handle.shape is None else handle.shape.blank()
        return handle.unpack() if type(handle) is Coded else handle.tape.unpack(handle)

    # -- ops ----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        info = op_info(func) if isinstance(func, OpOverload) else None
        if info is None or info.passive or _graph_task_id() != -1 or self.tape.busy:
            if info is None or not info.writes_in_place or self.tape.busy:
                return func(*args, **kwargs) if kwargs else func(*args)
            written = self._before_write(info, args, kwargs or {})
            out = called(func, info, args, kwargs or {})
            _follow_writes(written)
            return out
        if info.collective:
            return self._collective(func, info, args, kwargs or {})
        entry = self.stream.next(func, info)
        if self.stream.over:
            self.tape.complete = True  # a backward inside the region may let go of what the plan lets go of
        if self.savers is not None:
            waited = self.savers.before(func, args)
            if waited and entry is not None and entry.shape:
                self._forget(waited)
        if entry is None or entry.plain:
            if not info.writes_in_place and not info.random:
                out = func(*args, **kwargs) if kwargs else func(*args)
            else:
                written = self._before_write(info, args, kwargs or {}) if info.writes_in_place else ()
                with drawing if info.random else _NO_LOCK:
                    out = called(func, info, args, kwargs or {})
                _follow_writes(written)
            if info.undefined:
                self._note_undefined(out)
            return out
        return self._tracked(func, info, entry, args, kwargs or {})

    def _forget(self, kept: list[weakref.ref[Kept]]) -> None:
        """An op is about to run whose node needs the shape alone of what was saved for it."""
        self.tape.busy, was = True, self.tape.busy
        try:
            for weak in kept:
                handle = weak()
                if handle is not None:
                    handle.forget()
        finally:
            self.tape.busy = was

    def _collective(self, func: OpOverload, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = self._before_write(info, args, kwargs)
        out = called(func, info, args, kwargs)
        _follow_writes(written)
        for t, _ in written:
            storage = t.untyped_storage()
            self.undefined.discard(storage._cdata)
            self.gathered.add(storage._cdata)
            self.guards.append(storage._weak_ref())
        return out

    def _tracked(self, func: OpOverload, info: OpInfo, entry: Entry, args: tuple[Any, ...], kwargs: Any) -> Any:
        """An op that will be recomputed, or that writes something recomputation starts from."""
        self.index += 1
        with drawing if info.random else _NO_LOCK:
            record = self._recorded(func, info, entry, args, kwargs) if entry.record else None
            written = self._before_write(info, args, kwargs) if info.writes_in_place else ()
            out = called(func, info, args, kwargs)
        if self.savers is not None:
            self.savers.after(func, args, out)
            self.places = plane(func, args)
        if written:
            _follow_writes(written)
            if len(written) != len(entry.inplace) or any(
                old is None or storage_key(t) in self.undefined for t, old in written
            ):
                record = None
            for (t, old), value in zip(written, entry.inplace, strict=False):
                slot = self._placed(value, t, entry.op, record)
                if record is not None and old is not None and slot is not None:
                    record.inplace.append((old, slot))
        if info.undefined:
            self._note_undefined(out)
        if entry.outs:
            self._place_outputs(entry, out, record)
        if record is not None:
            self.tape.records[entry.op] = record
        return out

    def _place_outputs(self, entry: Entry, out: Any, record: Record | None) -> None:
        """Slots for the storages an op has made: the n-th new one among its outputs is entry.outs[n]."""
        values = entry.outs
        k = 0
        for position, t in enumerate((out,) if isinstance(out, Tensor) else outputs_in(out)):
            if t is None or t.layout is not torch.strided or t.untyped_storage()._cdata in self.by_key:
                continue  # an argument handed back, or a second view of an output
            slot = self._placed(values[k], t, entry.op, record)
            if slot is not None and record is not None:
                record.outs.append((position, slot))
            k += 1
            if k == len(values):
                return

    def _placed(self, value: int, t: Tensor, op: int, record: Record | None) -> Slot | None:
        """The slot of `value`, which was just written to the storage of `t`; None where nobody will ask for it. The
        tape holds it if recomputation starts from it."""
        source = value in self.table.sources
        coding = self.table.coded.get(value)
        wanted = source or record is not None or coding is not None
        if not wanted or value not in self.table.interesting or not is_plain(t):
            return None
        storage = t.untyped_storage()
        slot = Slot(value)
        slot.nbytes = storage.nbytes()
        slot.op = op if record is not None else -1
        saves = self.table.saves.get(value)
        if saves is not None:
            slot.drop, slot.saves = coding is None, saves
        if coding is not None and slot.nbytes and slot.nbytes % t.element_size() == 0:
            slot.code = self._code_of(slot, coding, t, record)
        self.tape.slots[value] = slot
        self.by_key[storage._cdata] = slot
        self.guards.append(storage._weak_ref())
        if source:
            slot.held = True
            slot.tensor = alias(t)
            self.standing.append(slot)
        return slot

    def _code_of(self, slot: Slot, coding: Coding, t: Tensor, record: Record | None) -> Slot:
        """The slot of the code of a value that was just written."""
        code = Slot(coding.value)
        code.codec = Codec(coding.codec, t.dtype, self.places)
        if record is not None and not coding.keep:
            code.op, code.drop = slot.op, True
            record.codes.append((slot, code))
        self.tape.slots[coding.value] = code
        return code

    def _note_undefined(self, out: Any) -> None:
        """Memory without content: what is read from it before it is overwritten was put there by somebody unseen."""
        for t in outputs_in(out):
            if t is not None and t.layout is torch.strided:
                storage = t.untyped_storage()
                self.undefined.add(storage._cdata)
                self.guards.append(storage._weak_ref())

    def _recorded(
        self, func: OpOverload, info: OpInfo, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Record | None:
        """The call written down, or None if it could not be run again with certainty."""
        if info.pinned:
            return None
        record = Record(self.index, func, entry.module)
        # An op that overwrites its first argument whole does not mind what is in it.
        ignored = args[0] if info.overwrites and args else None
        scratch = statistics_written(info, args) if info.statistics is not None else ()
        for position, a in enumerate(args):
            if position in scratch:
                frozen = Scratch(a)
            else:
                frozen = self._frozen(a, record.reads, ignored, entry.inside)
                if frozen is _UNKNOWN:
                    return None
            record.args.append(frozen)
        for name, a in kwargs.items():
            frozen = self._frozen(a, record.reads, ignored, entry.inside)
            if frozen is _UNKNOWN:
                return None
            record.kwargs[name] = frozen
        if not entry.reads.issuperset([s.value for s in record.reads if not s.external and s.value >= 0]):
            self.stream.lose(entry, f"{info.name} on the outputs of other ops")
            return None
        if info.random:
            device = torch.device(kwargs.get("device") or next((t.device for t in tensors_in(args)), "cpu"))
            generator = generator_of(args, kwargs, device)
            if generator is not None:
                record.generator = (generator, generator.get_state())
            elif device.type != "meta":  # where nothing is drawn
                return None
        return record

    def _frozen(self, a: Any, reads: list[Slot], ignored: Tensor | None, inside: bool) -> Any:
        """An argument with its tensors replaced by refs; `_UNKNOWN` if one of them cannot be had again."""
        if isinstance(a, Tensor):
            if not is_plain(a):
                return _UNKNOWN
            key = a.untyped_storage()._cdata
            slot = self.by_key.get(key)
            if slot is None:
                slot = self._external(a, key)
            if not slot.certain or (key in self.undefined and a is not ignored):
                return _UNKNOWN
            if key in self.gathered and not inside:
                return _UNKNOWN
            reads.append(slot)
            return Ref(slot, a)
        if type(a) is list or type(a) is tuple:
            parts = [self._frozen(b, reads, ignored, inside) for b in a]  # pyright: ignore[reportUnknownVariableType]
            return _UNKNOWN if any(p is _UNKNOWN for p in parts) else parts
        return a

    def _external(self, t: Tensor, key: int) -> Slot:
        """A slot for a tensor that no tracked op wrote: it is held, and must stay as it is until backward."""
        slot = Slot()
        slot.external = True
        slot.tensor = alias(t)
        self.by_key[key] = slot
        self.standing.append(slot)
        return slot

    def _before_write(
        self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Tensor, Slot | None]]:
        """An op is about to write storages in place: save the old content where a record will read it. Returns the
        written tensors, one per storage, each with the slot it held (without batch-norm statistics)."""
        written: dict[int, tuple[Tensor, Slot | None]] = {}
        targets = [args[p] for p in info.mutates if p < len(args)]
        if info.mutates_kw:
            targets += [kwargs[k] for k in info.mutates_kw if k in kwargs]
        for t in held_in(tensors_in(targets)):
            key = t.untyped_storage()._cdata
            if key not in written:
                written[key] = (t, self._overwrite(key))
                if key in self.undefined and info.overwrites and _bytes_of(t) >= t.untyped_storage().nbytes():
                    self.undefined.discard(key)
        if info.statistics is not None:
            for p in statistics_written(info, args):
                self._overwrite(storage_key(args[p]))
        return list(written.values())

    def _overwrite(self, key: int) -> Slot | None:
        slot = self.by_key.pop(key, None)
        if slot is not None and slot.tensor is not None:
            slot.tensor = copy_of(slot.tensor)
            slot.external, slot.held = False, True
        return slot


_UNKNOWN = object()
_NO_LOCK = contextlib.nullcontext()


def _follow_writes(written: Iterable[tuple[Tensor, Slot | None]]) -> None:
    """Storages were written to, while dropped tensors look at them. A write that moves their version counter makes
    backward raise, as it should. One that does not (`.data`) shows in what autograd saved: there backward must see the
    new content, so that it has to be kept."""
    for t, old in written:
        if old is not None and old.handles:
            for weak in old.handles:
                handle = weak()
                if handle is not None and handle.witness is not None and handle.witness._version == handle.version:
                    handle.tensor = handle.ref.on(alias(t))
            old.handles.clear()


def _bytes_of(t: Tensor) -> int:
    return t.numel() * t.element_size()
