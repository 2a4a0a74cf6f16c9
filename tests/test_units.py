from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.units import format_bytes, format_flops, format_percent, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (102_400, "100.0 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (5 * 1024**3, "5.00 GiB"),
        (-2048, "-2.00 KiB"),
        (3 * 1024**6, "3072.0 PiB"),
    ],
)
def test_bytes_read_in_binary_units(n: int, text: str) -> None:
    assert format_bytes(n) == text


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("10GiB", 10 * 1024**3),
        ("512 MB", 512 * 10**6),
        ("1000", 1000),
        (" 1.5 kib ", 1536),
        (".5MiB", 512 * 1024),
        (7, 7),
    ],
)
def test_sizes_are_read(text: str | int, n: int) -> None:
    assert parse_bytes(text) == n


@pytest.mark.parametrize("text", ["", "GiB", "10XB", "-1", "0", "0GiB", 0, -5, "1e3", "10 GiB please", "60%", "nan"])
def test_what_is_no_size_is_refused_with_the_text(text: str | int) -> None:
    with pytest.raises(InputError) as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@given(st.integers(1, 2**60))
def test_a_formatted_size_reads_back_within_its_digits(n: int) -> None:
    assert parse_bytes(format_bytes(n)) == pytest.approx(n, rel=0.006)


@pytest.mark.parametrize(
    ("s", "text"),
    [(12.3456, "12.35 s"), (1.0, "1.00 s"), (0.0032, "3.20 ms"), (15e-6, "15.00 us"), (5e-9, "5 ns"), (0.0, "0 ns")],
)
def test_seconds_have_a_fitting_unit(s: float, text: str) -> None:
    assert format_seconds(s) == text


@pytest.mark.parametrize(("n", "text"), [(0, "0 FLOP"), (999, "999 FLOP"), (2_500_000_000, "2.50 GFLOP")])
def test_flops_have_a_prefix(n: int, text: str) -> None:
    assert format_flops(n) == text


def test_a_fraction_is_a_percentage() -> None:
    assert format_percent(0.1234) == "12.3 %"
