"""What ops cost, whoever runs them: FLOPs, and seconds by the roofline that Lowtide plans with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lowtide.acting.ops import op_info
from lowtide.acting.traffic import compute_dtype, traffic_bytes
from lowtide.planning.cost import Device
from lowtide.planning.step import Op, Phase

_OP = Op("", Phase.FORWARD, "", (), (), (), 0, 0, 0, "", False)


class Work(TorchDispatchMode):
    """While it is entered, once or several times: the sum over all ops seen.

    Attributes:
        flops: multiplications and additions of convolutions, matmuls and attention.
        seconds: by the roofline of `device`.
    """

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.flops = 0
        self.seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not isinstance(func, OpOverload):
            return out
        info = op_info(func)
        if info.passive:
            return out
        count = flop_registry.get(func._overloadpacket)
        flops = int(count(*args, **kwargs, out_val=out)) if count is not None else 0
        op = replace(_OP, name=info.name, flops=flops, dtype=compute_dtype(args, kwargs, out))
        self.flops += flops
        self.seconds += self.device.seconds(op, traffic_bytes(info, args, kwargs, out))
        return out
