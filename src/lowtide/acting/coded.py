"""What autograd holds for saved tensors that the plan replaces: a code, or a shape without content."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from lowtide.acting.blank import blank
from lowtide.acting.codec import Codec, elements_of
from lowtide.acting.record import Ref, alias, below_autograd, changed, version_of
from lowtide.errors import ReplayError

NOTHING = torch.empty(0)


def witness_of(t: Tensor, inside: bool = True) -> tuple[Tensor | None, int]:
    """A tensor without memory that shares the version counter of `t`, and what the counter shows. None for tensors that
    have no content anyway (fake, meta). `inside`: it may be that a dispatch mode runs now; if not, it is quicker."""
    if t.is_meta or type(t) is FakeTensor:
        return None, -1
    with torch._C._DisableTorchDispatch():
        witness = alias(t) if inside else t.detach()
        witness.data = NOTHING
    return witness, version_of(t)


def only_in_backward() -> None:
    """Codes of signs, and shapes, are good for the backward op that they were made for, and nothing else.

    Raises:
        ReplayError: outside of a backward pass.
    """
    if torch._C._current_graph_task_id() == -1:
        raise ReplayError(
            "this saved tensor was compressed to what its backward needs, and has no content to look at: make the plan "
            "with compress=False"
        )


class Coded:
    """A saved tensor of which the code is held.

    Attributes:
        code: made by `codec`; handles of one value share it.
        ref: the geometry.
        witness, version: as in `witness_of`, at the time it was saved.
        tensor: what it was answered with, from then until the node lets go.
    """

    __slots__ = ("__weakref__", "code", "codec", "n", "ref", "tape", "tensor", "version", "witness")

    def __init__(self, tape: Any, codec: Codec, code: Tensor, ref: Ref, t: Tensor) -> None:
        self.tape = weakref.ref(tape)  # which would hold what recomputation starts from
        self.codec, self.code, self.ref, self.n = codec, code, ref, elements_of(t)
        self.witness, self.version = witness_of(t)
        self.tensor: Tensor | None = None

    def unpack(self) -> Tensor:
        """The tensor, decoded.

        Raises:
            RuntimeError: if the saved tensor was modified, as autograd does.
        """
        if self.witness is not None and self.witness._version != self.version:
            raise RuntimeError(changed(self.witness, self.version, "backward", self.ref))
        if self.tensor is not None:
            return self.tensor
        if self.codec.is_sign:
            only_in_backward()
        tape = self.tape()
        was = tape.busy if tape is not None else False
        try:
            if tape is not None:
                tape.busy = True
            with below_autograd():
                t = self.ref.on(self.codec.decode(self.code, self.n))
        finally:
            if tape is not None:
                tape.busy = was
        if torch._C._current_graph_task_id() != -1 and not torch._C._autograd._get_current_graph_task_keep_graph():
            self.tensor = t
        return t


class Shape:
    """The geometry of a saved tensor."""

    __slots__ = ("device", "dtype", "fake", "size", "stride")

    def __init__(self, t: Tensor) -> None:
        self.size: Sequence[int] = t.size()
        self.stride: Sequence[int] = t.stride()
        self.dtype, self.device = t.dtype, t.device
        self.fake = t.new_empty(0) if type(t) is FakeTensor else None

    def blank(self) -> Tensor:
        """A tensor of this geometry, for backward."""
        only_in_backward()
        with below_autograd():
            if self.fake is not None:
                return self.fake.new_empty_strided(self.size, self.stride)
            return blank(self.size, self.stride, self.dtype, self.device)
