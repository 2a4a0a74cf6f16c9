"""Inputs as text: `8x3x224x224`, `2x128:int64`, `labels=2x128:int64:1000`; and the tensors they ask for."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from lowtide.errors import InputError

_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "complex64": torch.complex64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_SHORT = {
    "double": "float64", "float": "float32", "half": "float16", "fp64": "float64", "fp32": "float32",
    "fp16": "float16", "bf16": "bfloat16", "long": "int64", "int": "int32", "i64": "int64", "i32": "int32",
}  # fmt: skip
_INPUT = re.compile(r"(?:(?P<name>[^=:]*)=)?(?P<sizes>[^:=]*)(?::(?P<dtype>[^:]*))?(?::(?P<below>[^:]*))?")
# Such an input says where to look, so random zeros could hide whole rows and turn a softmax into NaN.
_MASK = re.compile(r"mask", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input tensor.

    Attributes:
        shape: sizes, all positive; () is a scalar.
        dtype: name of a torch dtype, or '' for the model's own floating point type.
        name: keyword that the model takes it by, '' if by position.
        below: whole numbers are drawn from [0, below); 0 leaves the limit to the model (its vocabulary).
    """

    shape: tuple[int, ...]
    dtype: str = ""
    name: str = ""
    below: int = 0

    def __str__(self) -> str:
        text = "x".join(map(str, self.shape)) or "scalar"
        text = f"{self.name}={text}" if self.name else text
        if self.dtype or self.below:
            text = f"{text}:{self.dtype}"
        return f"{text}:{self.below}" if self.below else text


def parse_dtype(text: str) -> torch.dtype:
    """`'bfloat16'` or `'bf16'` as a torch dtype.

    Raises:
        InputError: if there is no such type; the message lists the known ones.
    """
    name = text.strip().lower().removeprefix("torch.")
    name = _SHORT.get(name, name)
    if name not in _DTYPES:
        raise InputError(f"{text!r} is not a tensor type; known types: {', '.join(_DTYPES)}")
    return _DTYPES[name]


def parse_input(text: str) -> InputSpec:
    """`[name=]sizes[:type[:below]]` as an `InputSpec`; `scalar` stands for no sizes at all.

    Raises:
        InputError: if the text does not read so, or a size is not a positive whole number.
    """
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not an input: write sizes such as 8x3x224x224, 2x128:int64 or mask=2x128:bool")
    name, dtype, below = match["name"], match["dtype"], match["below"]
    if name is not None and not name.strip().isidentifier():
        raise InputError(f"{name!r} in the input {text!r} cannot be the name of an argument")
    return InputSpec(
        shape=_sizes(match["sizes"].strip(), text),
        dtype=str(parse_dtype(dtype)).removeprefix("torch.") if dtype else "",
        name=name.strip() if name else "",
        below=_below(below, text),
    )


def _sizes(sizes: str, text: str) -> tuple[int, ...]:
    if sizes == "scalar":
        return ()
    parts = sizes.lower().split("x")
    if not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"{text!r} has no sizes that can be read: write them as in 8x3x224x224 (or 'scalar')")
    shape = tuple(int(part) for part in parts)
    if 0 in shape:
        raise InputError(f"{text!r} has a size of 0: every size must be at least 1")
    return shape


def _below(below: str | None, text: str) -> int:
    if below is None:
        return 0
    if not below.strip().isdecimal() or int(below) == 0:
        raise InputError(f"the limit {below!r} in {text!r} must be a positive whole number: values are drawn below it")
    return int(below)


def draw(spec: InputSpec, *, default: torch.dtype, below: int, device: str, generator: torch.Generator) -> Tensor:
    """The tensor that `spec` asks for: normal random floats, whole numbers from [0, `spec.below` or `below`), ones for
    a mask; without content on `meta`.

    Raises:
        InputError: if the machine's memory cannot hold it.
    """
    dtype = _DTYPES[spec.dtype] if spec.dtype else default
    if device == "meta":
        return torch.empty(spec.shape, dtype=dtype, device="meta")
    try:
        if dtype.is_floating_point or dtype.is_complex:
            wide = dtype if dtype in (torch.float64, torch.complex64) else torch.float32
            return torch.randn(spec.shape, dtype=wide, generator=generator).to(device, dtype)
        if _MASK.search(spec.name):
            return torch.ones(spec.shape, dtype=dtype, device=device)
        high = min(2 if dtype is torch.bool else spec.below or below, _largest(dtype) + 1)
        return torch.randint(high, spec.shape, generator=generator).to(device, dtype)
    except (RuntimeError, MemoryError) as e:
        raise InputError(f"an input of {spec} ({math.prod(spec.shape):,} elements) does not fit in memory") from e


def _largest(dtype: torch.dtype) -> int:
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max
