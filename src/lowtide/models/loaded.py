"""`LoadedModel`: a model found by name, with the inputs that suit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lowtide.errors import InputError
from lowtide.models.inputs import InputSpec, draw

Kwargs = dict[str, Any]


@dataclass(frozen=True)
class LoadedModel:
    """A model in training mode, and how to call it.

    Attributes:
        name: what the user asked for, with its settings: `hf:gpt2(n_layer=4)`.
        default_inputs: what to call it with if the user names no inputs; () if that is not known.
        loss: output -> scalar; None leaves it to Lowtide (a scalar output, its `.loss`, or the sum of its tensors).
        args, kwargs: ready inputs from the user's factory; None if there are none.
        device: where the model is: `meta` or `cpu`.
        first: keyword of the first unnamed input ('' if it is passed by position).
        vocabulary: whole numbers are drawn below it.
        complete: keyword inputs and a generator -> keyword inputs with what is missing for a loss (labels).
    """

    model: nn.Module
    name: str
    default_inputs: tuple[InputSpec, ...] = ()
    loss: Callable[[Any], torch.Tensor] | None = None
    args: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    device: str = "cpu"
    first: str = ""
    vocabulary: int = 2
    complete: Callable[[Kwargs, torch.Generator], Kwargs] | None = None

    def inputs(self, specs: Sequence[InputSpec] = (), *, seed: int = 0) -> tuple[tuple[Any, ...], Kwargs]:
        """Arguments and keyword arguments for one call. `specs` replaces what would be used by default.

        Raises:
            InputError: if no inputs are known, or one keyword is given twice.
        """
        if not specs and self.args is not None:
            return self.args, dict(self.kwargs)
        chosen = self.chosen(specs)
        generator = torch.Generator().manual_seed(seed)
        default = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
        args: list[Any] = []
        kwargs: Kwargs = {}
        for spec in chosen:
            tensor = draw(spec, default=default, below=self.vocabulary, device=self.device, generator=generator)
            if not spec.name:
                args.append(tensor)
            elif spec.name in kwargs:
                raise InputError(f"the input {spec.name!r} is given twice")
            else:
                kwargs[spec.name] = tensor
        return tuple(args), self.complete(kwargs, generator) if self.complete else kwargs

    def chosen(self, specs: Sequence[InputSpec] = ()) -> tuple[InputSpec, ...]:
        """`specs`, or the defaults if there are none, with names and types filled in as the model wants them.

        Raises:
            InputError: if `specs` is empty and the model has no defaults.
        """
        if not specs:
            if not self.default_inputs:
                raise InputError(f"{self.name} has no inputs of its own: say which with --input, such as 8x3x224x224")
            return self.default_inputs
        if not self.first or any(spec.name == self.first for spec in specs):
            return tuple(specs)
        types = {spec.name: spec.dtype for spec in self.default_inputs}
        out: list[InputSpec] = []
        for n, spec in enumerate(specs):
            name = spec.name or (self.first if n == 0 else "")
            out.append(InputSpec(spec.shape, spec.dtype or types.get(name, ""), name, spec.below))
        return tuple(out)

    def describe_inputs(self, specs: Sequence[InputSpec] = ()) -> str:
        """The inputs in one line: `input_ids=2x128:int64`."""
        if not specs and self.args is not None:
            return ", ".join([*map(_describe, self.args), *(f"{k}={_describe(v)}" for k, v in self.kwargs.items())])
        return ", ".join(map(str, self.chosen(specs)))


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    dtype = str(value.dtype).removeprefix("torch.")
    return str(InputSpec(tuple(value.shape), "" if dtype == "float32" else dtype))


def smallest_vocabulary(model: nn.Module) -> int:
    """The smallest number of rows of the model's embeddings, 2 if it has none: indices below it are always valid."""
    return min((m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)), default=2)
