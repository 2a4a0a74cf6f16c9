"""cost: `Step` -> `Step` with seconds per op, from a roofline of a named device. No torch here.

An op takes max(FLOPs / rate, bytes / bandwidth) + launch. The rates are what vendors print, times the share of it that
kernels are seen to reach; what matters to a plan is how ops compare. `acting.cost` measures instead of reckoning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from lowtide.errors import InputError
from lowtide.planning.step import Op, Step

# The shares of the printed rates that large kernels reach. Rules of thumb; both cancel out of a slowdown but where
# they shift an op from one side of the roofline to the other.
REACHED_FLOPS = 0.6
REACHED_BANDWIDTH = 0.8


@dataclass(frozen=True)
class Device:
    """What a roofline needs to know of a device.

    Attributes:
        name: what `device_named` knows it by.
        flops: floating point operations a second by type, dense, without sparsity; `'tf32'` is what convolutions in
            float32 run in by PyTorch's defaults, where there is such a rate.
        bandwidth: bytes a second to and from memory.
        launch_s: seconds that each op takes at least: the host's part and the kernel's start.
        memory_bytes: what the vendor says there is, 0 if that depends.
        source: where the figures are from.
    """

    name: str
    flops: Mapping[str, float]
    bandwidth: float
    launch_s: float
    memory_bytes: int
    source: str

    def rate(self, op: Op) -> float:
        """FLOP/s for `op`; types the device has no rate for run at float32's."""
        if op.dtype == "float32" and "convolution" in op.name and "tf32" in self.flops:
            return self.flops["tf32"]
        wide = {"complex64": "float32", "complex128": "float64", "": "float32"}
        kind = wide.get(op.dtype, op.dtype)
        return self.flops.get(kind, self.flops["float32"])

    def seconds(self, op: Op, nbytes: int) -> float:
        """What `op` takes if it moves `nbytes` bytes."""
        compute = op.flops / (self.rate(op) * REACHED_FLOPS)
        return max(compute, nbytes / (self.bandwidth * REACHED_BANDWIDTH)) + self.launch_s


def _gpu(
    name: str,
    gib: int,
    gbps: float,
    source: str,
    *,
    fp64: float,
    fp32: float,
    fp16: float,
    bf16: float = 0.0,
    tf32: float = 0.0,
) -> Device:
    """A GPU, rates in TFLOP/s and GB/s as printed."""
    tera = {"float64": fp64, "float32": fp32, "float16": fp16, "bfloat16": bf16, "tf32": tf32}
    flops = {kind: rate * 1e12 for kind, rate in tera.items() if rate}
    return Device(name, flops, gbps * 1e9, 4e-6, gib * 2**30, source)


def _cpu() -> Device:
    cores = os.cpu_count() or 1
    flops = {"float64": 15e9 * cores, "float32": 30e9 * cores, "bfloat16": 15e9 * cores, "float16": 8e9 * cores}
    return Device(
        "cpu", flops, 6e9 * min(cores, 16), 8e-6, 0, "a rule of thumb for this machine's cores; see calibrate"
    )


DEVICES: dict[str, Device] = {
    d.name: d
    for d in (
        _gpu("v100", 32, 900, "NVIDIA V100 data sheet, SXM2, 2020", fp64=7.8, fp32=15.7, fp16=125),
        _gpu("t4", 16, 320, "NVIDIA T4 data sheet, 2019", fp64=0.25, fp32=8.1, fp16=65),
        _gpu(
            "a100", 80, 2039, "NVIDIA A100 data sheet, 80 GB SXM, 2022",
            fp64=19.5, fp32=19.5, tf32=156, fp16=312, bf16=312,
        ),
        _gpu(
            "a100-40gb", 40, 1555, "NVIDIA A100 data sheet, 40 GB, 2022",
            fp64=19.5, fp32=19.5, tf32=156, fp16=312, bf16=312,
        ),
        _gpu("a10", 24, 600, "NVIDIA A10 data sheet, 2021", fp64=0.98, fp32=31.2, tf32=62.5, fp16=125, bf16=125),
        _gpu("l4", 24, 300, "NVIDIA L4 data sheet, 2023", fp64=0.49, fp32=30.3, tf32=60, fp16=121, bf16=121),
        _gpu("l40s", 48, 864, "NVIDIA L40S data sheet, 2023", fp64=1.4, fp32=91.6, tf32=183, fp16=362, bf16=362),
        _gpu(
            "h100", 80, 3350, "NVIDIA H100 data sheet, SXM5, 2023",
            fp64=67, fp32=67, tf32=494.7, fp16=989.4, bf16=989.4,
        ),
        _gpu(
            "h200", 141, 4800, "NVIDIA H200 data sheet, SXM, 2024",
            fp64=67, fp32=67, tf32=494.7, fp16=989.4, bf16=989.4,
        ),
        _gpu(
            "rtx3090", 24, 936, "NVIDIA Ampere GA102 white paper, appendix A, 2021",
            fp64=0.56, fp32=35.6, tf32=35.6, fp16=71, bf16=71,
        ),
        _gpu(
            "rtx4090", 24, 1008, "NVIDIA Ada white paper, appendix A, 2022",
            fp64=1.3, fp32=82.6, tf32=82.6, fp16=165.2, bf16=165.2,
        ),
        _gpu(
            "rtx5090", 32, 1792, "NVIDIA RTX Blackwell white paper, appendix A, 2025",
            fp64=1.6, fp32=104.8, tf32=104.8, fp16=209.5, bf16=209.5,
        ),
        _cpu(),
    )
}  # fmt: skip


def device_named(name: str) -> Device:
    """The device of that name. Vendors' longer names will do: `'NVIDIA GeForce RTX 4090'`, `'NVIDIA L4'`.

    Raises:
        InputError: if none is known by it; the message lists those that are.
    """
    key = name.strip().lower()
    if key in DEVICES:
        return DEVICES[key]
    for known in sorted(DEVICES, key=len, reverse=True):
        if re.search(_pattern(known), key):
            return DEVICES[known]
    close = get_close_matches(key, DEVICES, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(f"unknown device {name!r}: {hint}choose from {', '.join(DEVICES)}")


def _pattern(name: str) -> str:
    """What finds `rtx4090` in `NVIDIA GeForce RTX 4090`, and `a100-40gb` in `NVIDIA A100-SXM4-40GB`."""
    parts = [re.sub(r"(?<=rtx)(?=[0-9])", "[ -]?", part) for part in name.split("-")]
    return ".*".join(rf"\b{part}\b" for part in parts)


def traffic_of(step: Step, op: Op) -> int:
    """Bytes that `op` moves: as traced, or the whole storages that it reads and writes."""
    if op.traffic_bytes:
        return op.traffic_bytes
    return sum(step.nbytes(v) for v in (*op.reads, *op.writes))


def roofline(step: Step, device: Device | str) -> Step:
    """`step` with the seconds that each op would take on `device`.

    Raises:
        InputError: if there is no device of that name.
    """
    d = device_named(device) if isinstance(device, str) else device
    seconds = tuple(d.seconds(op, traffic_of(step, op)) for op in step.ops)
    meta = {**step.meta, "costs": f"roofline of {d.name}"}
    return replace(step, seconds=seconds, meta=meta)
