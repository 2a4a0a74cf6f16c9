"""`measure`: what the allocator saw while something ran. The witness that no planner has a say in.

On CPU the record comes from PyTorch's profiler: with `profile_memory` on, the CPU allocator notes every block that it
hands out and takes back, in order, with address and size, scratch that kernels ask PyTorch for included. It costs about
2 us an op. On CUDA it is the caching allocator's own counter.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch.autograd.profiler import profile

from lowtide.errors import InputError
from lowtide.units import format_bytes, format_seconds

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement(Generic[T]):
    """What one call allocated.

    Attributes:
        peak_bytes: most bytes allocated at one time, above what was allocated when the call began.
        end_bytes: what was still allocated when it returned, its result alive.
        seconds: wall time of the call; with `repeat` the median of the runs without the witness.
        device: the device that was watched, `'cpu'` or `'cuda:0'`.
        allocations: number of blocks handed out.
        result: what the call returned.
    """

    peak_bytes: int
    end_bytes: int
    seconds: float
    device: str
    allocations: int
    result: T = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """Everything but the result."""
        names = ("peak_bytes", "end_bytes", "seconds", "device", "allocations")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return (
            f"Measurement(peak {format_bytes(self.peak_bytes)}, at the end {format_bytes(self.end_bytes)}, "
            f"{format_seconds(self.seconds)}, {self.allocations} allocations on {self.device})"
        )


def measure(fn: Callable[[], T], device: str | torch.device | None = None, *, repeat: int = 0) -> Measurement[T]:
    """Call `fn` once and tell how much memory it took.

    The garbage collector runs before and stays off meanwhile, so that no peak depends on when it happens to come.

    On CPU the running sum starts at 0 and counts the blocks of this call alone: a block that stood before and is freed
    by `fn` does not lower it. Blocks allocated in Python threads that `fn` starts itself are not seen there: the
    profiler watches the calling thread (autograd's CPU backward runs in it) and the kernels that it calls. A block that
    such a thread frees counts as alive until its address is handed out again.

    Args:
        fn: what to run, without arguments.
        device: `'cpu'` or a CUDA device. None: the current CUDA device if `fn` allocated there, else the CPU.
        repeat: run `fn` so many times more without the witness, and give their median as `seconds`. With 0, `seconds`
            is that of the one run, under the profiler on CPU.

    Raises:
        InputError: if the device is neither CPU nor CUDA, or a profiler is on already.
    """
    where = None if device is None else torch.device(device)
    if where is not None and where.type not in ("cpu", "cuda"):
        raise InputError(f"cannot measure on {str(where)!r}: use 'cpu' or a CUDA device")
    with _collector_off():
        if where is not None and where.type == "cuda":
            found = _on_cuda(fn, where)
        elif where is None and torch.cuda.is_initialized():
            cuda = _on_cuda(lambda: _on_cpu(fn), torch.device("cuda", torch.cuda.current_device()))
            cpu = cuda.result
            found = cpu
            if cuda.allocations:
                found = Measurement(
                    cuda.peak_bytes, cuda.end_bytes, cpu.seconds, cuda.device, cuda.allocations, cpu.result
                )
        else:
            found = _on_cpu(fn)
        if repeat <= 0:
            return found
        seconds = statistics.median(_timed(fn, found.device) for _ in range(repeat))
    return Measurement(found.peak_bytes, found.end_bytes, seconds, found.device, found.allocations, found.result)


@dataclass(frozen=True, slots=True)
class Block:
    """One line of the CPU allocator's record: `nbytes` allocated (> 0) or freed (< 0) at `address`."""

    time_ns: int
    address: int
    nbytes: int


def record_blocks(fn: Callable[[], T]) -> tuple[list[Block], float, T]:
    """Call `fn` under the profiler: the CPU allocator's record in order, the seconds `fn` took, and its result.

    Raises:
        InputError: if a profiler is on already.
    """
    if torch.autograd._profiler_enabled():  # pyright: ignore
        raise InputError("cannot measure while a profiler is on: PyTorch has only one; stop it first")
    with _quiet_profiler():
        watch = profile(profile_memory=True)
        with watch:
            start = time.perf_counter()
            result = fn()
            seconds = time.perf_counter() - start
        blocks = list(_blocks(watch.kineto_results.experimental_event_tree()))  # pyright: ignore
    blocks.sort(key=lambda b: b.time_ns)  # stable: blocks of one nanosecond stay in the order of the tree
    return blocks, seconds, result


def running_bytes(blocks: list[Block]) -> list[int]:
    """The bytes allocated after each line of the record. Only blocks that the record saw allocated are counted when
    they are freed: a block that an earlier measured call left behind would else lower the sum."""
    live: dict[int, int] = {}
    total, out = 0, list[int]()
    for b in blocks:
        total -= live.pop(b.address, 0)  # freed; or handed out anew, so that its free was in a thread we do not see
        if b.nbytes > 0:
            live[b.address] = b.nbytes
            total += b.nbytes
        out.append(total)
    return out


def _blocks(roots: list[Any]) -> Iterator[Block]:
    stack = list(reversed(roots))
    while stack:
        event = stack.pop()
        if event.name == "[memory]":
            fields = event.typed[1]
            if fields.device.type == "cpu" and fields.ptr:
                yield Block(event.start_time_ns, fields.ptr, fields.alloc_size)
        stack.extend(reversed(event.children))


def _on_cpu(fn: Callable[[], T]) -> Measurement[T]:
    blocks, seconds, result = record_blocks(fn)
    running = running_bytes(blocks)
    return Measurement(
        peak_bytes=max(running, default=0),
        end_bytes=running[-1] if running else 0,
        seconds=seconds,
        device="cpu",
        allocations=sum(b.nbytes > 0 for b in blocks),
        result=result,
    )


def _on_cuda(fn: Callable[[], T], where: torch.device) -> Measurement[T]:
    device = torch.empty(0, device=where).device  # plain `cuda` says which one
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before, count = torch.cuda.memory_allocated(device), _cuda_allocations(device)
    start = time.perf_counter()
    result = fn()
    torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    return Measurement(
        peak_bytes=torch.cuda.max_memory_allocated(device) - before,
        end_bytes=torch.cuda.memory_allocated(device) - before,
        seconds=seconds,
        device=str(device),
        allocations=_cuda_allocations(device) - count,
        result=result,
    )


def _cuda_allocations(device: torch.device) -> int:
    return int(torch.cuda.memory_stats(device).get("allocation.all.allocated", 0))


def _timed(fn: Callable[[], Any], device: str) -> float:
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    wait()
    start = time.perf_counter()
    fn()
    wait()
    return time.perf_counter() - start


@contextmanager
def _collector_off() -> Generator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _quiet_profiler() -> Generator[None]:
    """Kineto reads its log level when it first starts, and says on stderr that there is no GPU: not for our users."""
    if "KINETO_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        os.environ.pop("KINETO_LOG_LEVEL", None)
