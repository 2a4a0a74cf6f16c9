"""Bytes, seconds and FLOPs as text, and text as bytes. The only module that formats them."""

from __future__ import annotations

import re

from lowtide.errors import InputError

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SCALE = {
    "": 1,
    "B": 1,
    **{u: 1024**k for k, u in enumerate(_BINARY)},
    **{u: 1000**k for k, u in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))},
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def format_bytes(n: int) -> str:
    """`n` bytes in binary units with four significant digits at most: `1536 -> '1.50 KiB'`."""
    size, unit = float(n), 0
    while abs(size) >= 1023.95 and unit < len(_BINARY) - 1:
        size, unit = size / 1024, unit + 1
    if unit == 0:
        return f"{n} B"
    digits = 2 if abs(size) < 100 else 1
    return f"{size:.{digits}f} {_BINARY[unit]}"


def format_seconds(s: float) -> str:
    """`s` seconds with a fitting unit: `0.0032 -> '3.20 ms'`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(s) >= scale:
            return f"{s / scale:.2f} {unit}"
    return f"{s / 1e-9:.0f} ns"


def format_flops(n: int) -> str:
    """`n` floating point operations with an SI prefix: `2.5e9 -> '2.50 GFLOP'`."""
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(n) >= scale:
            return f"{n / scale:.2f} {unit}FLOP"
    return f"{n} FLOP"


def format_percent(x: float) -> str:
    """A fraction as a percentage: `0.1234 -> '12.3 %'`."""
    return f"{100 * x:.1f} %"


def parse_bytes(text: str | int) -> int:
    """`'10GiB'`, `'512 MB'`, `'1000'` or a number, as bytes.

    Raises:
        InputError: if the text is not a size, or not positive.
    """
    if isinstance(text, int):
        size = text
    else:
        match = _SIZE.fullmatch(text)
        units = {u.lower(): scale for u, scale in _SCALE.items()}
        if match is None or match[2].lower() not in units:
            raise InputError(
                f"{text!r} is not a size: write a number of bytes, or one with a unit such as 10GiB or 512MB"
            )
        size = int(float(match[1]) * units[match[2].lower()])
    if size <= 0:
        raise InputError(f"a size must be more than 0 bytes, not {text!r}")
    return size
