"""Codecs: small codes, and back without loss for whoever asked."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lowtide.acting.codec import Codec, index_bytes
from lowtide.acting.meter import StorageMeter
from lowtide.planning.compress import CHUNK_BYTES, code_bytes

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# Not divisible by 8, empty, more than one chunk.
SIZES = [0, 1, 7, 8, 9, 1000, 8 * CHUNK_BYTES + 3, 24 * CHUNK_BYTES + 77]
ODD = [math.nan, -0.0, 0.0, math.inf, -math.inf, -math.nan, 1e-40]


def numbers(n: int, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(n)
    x = torch.randn(n).to(dtype)
    x[: len(ODD)] = torch.tensor(ODD, dtype=dtype)[:n]
    return x


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_signs_are_enough_for_relu(n: int, dtype: torch.dtype) -> None:
    x, g = numbers(n, dtype), torch.randn(n).to(dtype)
    y, codec = torch.relu(x), Codec("nonpositive", dtype)
    code = codec.encode(y)
    assert code is not None
    assert code.numel() == code_bytes(f"nonpositive/{dtype.itemsize}", n * dtype.itemsize) == -(-n // 8)
    back = codec.decode(code, n)
    assert back.dtype == dtype
    assert same_bits(aten.threshold_backward(g, back, 0), aten.threshold_backward(g, y, 0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_signs_are_enough_for_leaky_relu(n: int, dtype: torch.dtype) -> None:
    x, g = numbers(n, dtype), torch.randn(n).to(dtype)
    y, codec = torch.nn.functional.leaky_relu(x, 0.1), Codec("positive", dtype)
    code = codec.encode(y)
    assert code is not None
    back = codec.decode(code, n)
    want = aten.leaky_relu_backward(g, y, 0.1, True)
    assert same_bits(aten.leaky_relu_backward(g, back, 0.1, True), want)


@pytest.mark.parametrize("n", SIZES)
def test_bools_come_back(n: int) -> None:
    mask, codec = torch.rand(n) > 0.5, Codec("bits", torch.bool)
    code = codec.encode(mask)
    assert code is not None
    assert code.numel() == code_bytes("bits", n)
    assert same_bits(codec.decode(code, n), mask)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES[1:])
def test_noise_comes_back(n: int, dtype: torch.dtype) -> None:
    noise, codec = torch.empty(n, dtype=dtype).bernoulli_(0.7).div_(0.7), Codec("two", dtype)
    code = codec.encode(noise)
    assert code is not None
    assert code.numel() == code_bytes(f"two/{dtype.itemsize}", n * dtype.itemsize)
    assert same_bits(codec.decode(code, n), noise)


@pytest.mark.parametrize("wrong", [0.5, -0.0, -1.0, math.nan])
@pytest.mark.parametrize("at", [0, 500, 8 * CHUNK_BYTES + 2])
def test_what_is_not_two_valued_has_no_code(wrong: float, at: int) -> None:
    noise = torch.ones(8 * CHUNK_BYTES + 3).bernoulli_(0.5)
    noise[at] = wrong
    assert Codec("two", torch.float32).encode(noise) is None


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, 1.0])
def test_a_single_value_comes_back(value: float) -> None:
    t, codec = torch.full((20,), value), Codec("two", torch.float32)
    code = codec.encode(t)
    assert code is not None
    assert same_bits(codec.decode(code, 20), t)


@pytest.mark.parametrize("places", [1, 256, 257, 65536, 65537, 1 << 32])
@pytest.mark.parametrize("n", SIZES[1:6])
def test_indices_come_back(n: int, places: int) -> None:
    indices, codec = torch.randint(0, places, (n,)), Codec("index", torch.int64, places)
    indices[-1] = places - 1
    code = codec.encode(indices)
    assert code is not None
    assert (
        code.untyped_storage().nbytes() == n * index_bytes(places) == code_bytes(f"index/{index_bytes(places)}", 8 * n)
    )
    assert same_bits(codec.decode(code, n), indices)


def test_the_width_of_indices() -> None:
    assert [index_bytes(1 << k) for k in (0, 8, 9, 16, 17, 32, 33)] == [1, 1, 2, 2, 4, 4, 8]


@pytest.mark.parametrize("name", ["nonpositive", "two"])
def test_they_allocate_little_besides(name: str) -> None:
    x = torch.zeros(64 * CHUNK_BYTES)
    codec = Codec(name, torch.float32)
    with StorageMeter() as meter:
        code = codec.encode(x)
    assert code is not None
    assert meter.peak_bytes <= code.numel() + 3 * CHUNK_BYTES + 16
    with StorageMeter() as meter:
        codec.decode(code, x.numel())
    assert meter.peak_bytes <= 4 * x.numel() + CHUNK_BYTES


@pytest.mark.parametrize("codec", [Codec("nonpositive", torch.float32), Codec("two", torch.float32)])
def test_meta_tensors_have_codes_of_the_same_size(codec: Codec) -> None:
    x = torch.zeros(1001)
    real, none = codec.encode(x), codec.encode(x.to("meta"))
    assert real is not None
    assert none is not None
    assert real.shape == none.shape
    assert codec.decode(none, 1001).shape == x.shape
