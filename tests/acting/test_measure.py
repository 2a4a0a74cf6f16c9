from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from lowtide.acting.measure import Block, Measurement, measure, running_bytes
from lowtide.acting.meter import StorageMeter
from lowtide.errors import InputError

MIB = 2**20


def block(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def alive_and_temporary() -> torch.Tensor:
    alive = block(4)
    temporary = block(8)
    del temporary
    return alive


def test_exact_bytes_of_one_alive_and_one_temporary() -> None:
    found = measure(alive_and_temporary)
    assert (found.peak_bytes, found.end_bytes, found.allocations) == (12 * MIB, 4 * MIB, 2)
    assert found.device == "cpu"
    assert found.result.numel() == 4 * MIB
    assert found.seconds > 0


def test_order_matters_not_the_sum() -> None:
    def one_after_the_other() -> None:
        for _ in range(10):
            del_me = block(8)
            del del_me

    assert measure(one_after_the_other).peak_bytes == 8 * MIB


def test_frees_of_older_blocks_do_not_lower_the_baseline() -> None:
    unknown = [block(64)]
    known = [measure(lambda: block(32)).result]  # this one the allocator remembers from an earlier record

    def fn() -> torch.Tensor:
        unknown.clear()
        known.clear()
        return block(4)

    found = measure(fn)
    assert (found.peak_bytes, found.end_bytes) == (4 * MIB, 4 * MIB)


def test_a_block_freed_between_two_records_is_forgotten() -> None:
    first = measure(lambda: block(16))
    del first
    found = measure(alive_and_temporary)
    assert (found.peak_bytes, found.end_bytes) == (12 * MIB, 4 * MIB)


def test_running_bytes_pairs_blocks_by_address() -> None:
    record = [Block(0, 1, 10), Block(1, 2, 5), Block(2, 1, -10), Block(3, 9, -100), Block(4, 2, 7), Block(5, 2, -7)]
    # 9 stood before; 2 is handed out again, so that it was freed where we could not see it
    assert running_bytes(record) == [10, 15, 5, 5, 7, 0]


def test_backward_and_kernel_threads_are_seen() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(32, 32, 3, padding=1)
    x = torch.randn(8, 32, 64, 64, requires_grad=True)

    def step() -> None:
        conv(x).square().sum().backward()

    with StorageMeter() as meter:
        step()
    conv.zero_grad()
    x.grad = None
    found = measure(step)
    activation = x.numel() * 4
    assert found.peak_bytes >= 3 * activation  # y, y**2 or its gradient, gradient of x or of y
    assert meter.peak_bytes <= found.peak_bytes <= 1.5 * meter.peak_bytes
    assert found.end_bytes == activation + sum(p.numel() * 4 for p in conv.parameters())


def test_agrees_with_what_the_system_gives_the_process() -> None:
    clear, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    try:
        clear.write_text("5")
    except OSError:
        pytest.skip("no high-water mark that can be reset")

    def kib(name: str) -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name))

    before = kib("VmRSS")

    def fn() -> torch.Tensor:
        alive = torch.ones(64 * MIB, dtype=torch.uint8)
        temporary = torch.ones(128 * MIB, dtype=torch.uint8)
        del temporary
        return alive

    found = measure(fn)
    assert found.peak_bytes == 192 * MIB
    assert (kib("VmHWM") - before) * 1024 == pytest.approx(found.peak_bytes, rel=0.05)


def test_collector_is_off_and_comes_back() -> None:
    def cycles() -> bool:
        for _ in range(5):
            ring: list[object] = [block(2)]
            ring.append(ring)
        return gc.isenabled()

    found = measure(cycles)
    assert found.result is False
    assert found.peak_bytes == 10 * MIB
    assert gc.isenabled()
    gc.disable()
    try:
        measure(cycles)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_passes_through_and_leaves_nothing_behind() -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(fails)
    assert gc.isenabled()
    assert not torch.autograd._profiler_enabled()
    assert measure(alive_and_temporary).peak_bytes == 12 * MIB


def test_repeat_times_runs_without_the_witness() -> None:
    watched: list[bool] = []
    found = measure(lambda: watched.append(torch.autograd._profiler_enabled()), repeat=3)
    assert watched == [True, False, False, False]
    assert found.seconds >= 0


def test_says_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="'meta'"):
        measure(lambda: None, "meta")
    with torch.autograd.profiler.profile(), pytest.raises(InputError, match="profiler is on"):
        measure(lambda: None)


def test_quiet_on_stderr() -> None:
    """In a process of its own: whoever starts the profiler first decides how much Kineto says."""
    code = "import torch, lowtide; lowtide.measure(lambda: torch.ones(9))"
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stderr == ""


def test_json_and_repr_leave_the_result_out() -> None:
    found = measure(alive_and_temporary)
    assert set(found.to_json()) == {"peak_bytes", "end_bytes", "seconds", "device", "allocations"}
    assert "12.00 MiB" in repr(found)
    assert "tensor" not in repr(found)
    assert isinstance(found, Measurement)


def mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(64, 64), nn.Tanh(), nn.LayerNorm(64)]
    return nn.Sequential(*layers)


def test_meter_is_exact_where_kernels_need_no_scratch() -> None:
    def fn() -> list[torch.Tensor]:
        a = torch.ones(MIB)
        b = a.exp()
        del a
        c = b.view(-1, 16).clone()
        c.exp_()
        return [b, c]

    with StorageMeter() as meter:
        kept = fn()
        assert meter.current_bytes == 2 * 4 * MIB
        del kept
        assert meter.current_bytes == 0
    assert meter.peak_bytes == measure(fn).peak_bytes == 2 * 4 * MIB


def test_meter_counts_what_autograd_alone_holds() -> None:
    x = torch.randn(MIB, requires_grad=True)
    with StorageMeter() as meter:
        y = x.exp().exp().exp()
        assert meter.current_bytes == 3 * 4 * MIB
        y.sum().backward()
        del y
        assert meter.current_bytes == 4 * MIB  # x.grad
    assert meter.peak_bytes >= 5 * 4 * MIB


def test_meter_sees_the_same_step_on_meta_fake_and_real() -> None:
    def peak(device: str) -> tuple[int, int]:
        with torch.device(device):
            model, x = mlp(), torch.ones(512, 64)
        with StorageMeter() as meter:
            model(x).sum().backward()
        return meter.peak_bytes, meter.current_bytes

    real = peak("cpu")
    assert peak("meta") == real
    with FakeTensorMode():
        assert peak("cpu") == real
    assert real[1] == sum(p.numel() * 4 for p in mlp().parameters())


def test_meter_follows_a_storage_that_grows() -> None:
    with StorageMeter() as meter:
        x = torch.empty(0)
        x.resize_(MIB)
        assert meter.current_bytes == 4 * MIB
        del x
        assert meter.current_bytes == 0


def test_meter_does_not_count_what_stood_before() -> None:
    x = torch.ones(MIB)
    with StorageMeter() as meter:
        y = x.view(2, -1).detach()
        y.mul_(2)
    assert meter.peak_bytes == 0


def test_meter_reset_peak() -> None:
    with StorageMeter() as meter:
        del_me = block(4)
        del del_me
        kept = block(1)
        meter.reset_peak()
        assert meter.peak_bytes == meter.current_bytes == kept.numel()
