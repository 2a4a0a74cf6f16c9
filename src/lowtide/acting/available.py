"""available: how much memory this process can have on a device, right now."""

from __future__ import annotations

import os

import torch

from lowtide.errors import InputError


def available_bytes(device: str | torch.device) -> int:
    """Bytes that tensors of this process can take on `device`: what they have now, and what is free.

    Raises:
        InputError: if that cannot be told.
    """
    where = torch.device(device)
    if where.type == "cuda":
        free, _ = torch.cuda.mem_get_info(where)
        return free + torch.cuda.memory_reserved(where)
    if where.type in ("cpu", "meta"):
        return _free_host_bytes()
    raise InputError(f"what is free on {str(where)!r} cannot be told: write a budget such as '10GiB'")


def _free_host_bytes() -> int:
    try:
        with open("/proc/meminfo") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError) as e:
        raise InputError(f"the machine does not say how much memory is free ({e}): write a size such as '10GiB'") from e
