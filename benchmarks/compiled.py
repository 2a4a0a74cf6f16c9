"""torch.compile's `activation_memory_budget`: its partitioner's graphs of forward and backward, run op by op on fake
tensors, as `backend="aot_eager"` would run them for real.

The loss is part of the graphs if it is part of the function; the engine's adding of gradients is outside.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

# Budgets between 0 and 1, and who solves the knapsack: those that gave the lower peaks on ResNet-50 in earlier trials
# with all of its solvers. The first recomputes nothing: it is the rival's plain step.
SETTINGS: tuple[tuple[float, str], ...] = (
    (1.0, "dp"),
    (0.8, "dp"),
    (0.5, "dp"),
    (0.45, "greedy"),
    (0.4, "dp"),
    (0.3, "greedy"),
    (0.2, "dp"),
    (0.1, "dp"),
)

# A compilation takes up to a minute for large graphs: what other networks are compiled with.
FEW: tuple[tuple[float, str], ...] = ((1.0, "dp"), (0.8, "dp"), (0.5, "dp"), (0.2, "dp"))


class _Captured(Exception):
    """Both graphs are there: nothing needs to run."""


class Compiled:
    """The two graphs of a scalar function for one budget; None: of the partitioner that recomputes nothing.

    Raises:
        RuntimeError: if the function is not captured in one graph.
    """

    def __init__(self, call: Callable[[], Tensor], budget: float | None, solver: str = "dp") -> None:
        config: Any = importlib.import_module("torch._functorch.config")
        common: Any = importlib.import_module("torch._dynamo.backends.common")
        compilers: Any = importlib.import_module("functorch.compile")
        partition: Any = compilers.min_cut_rematerialization_partition
        if budget is None:
            budget, partition = 1.0, compilers.default_partition
        self.graphs: list[Any] = []

        def captured(graph: Any, _: Any) -> Any:
            self.graphs.append(graph)
            is_forward = len(self.graphs) == 1

            def run(args: list[Any]) -> Any:
                if not is_forward:
                    raise _Captured
                # Memory without content that nobody touches, so that backward is compiled, too.
                return [_fresh(n.meta["val"]) if hasattr(n, "meta") else n for n in _outputs(graph)]

            run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
            return run

        torch._dynamo.reset()
        backend = common.aot_autograd(
            fw_compiler=captured, bw_compiler=captured, partition_fn=partition, keep_inference_input_mutations=True
        )
        with (
            warnings.catch_warnings(),
            config.patch(activation_memory_budget=budget, activation_memory_budget_solver=solver),
        ):
            warnings.simplefilter("ignore")
            with contextlib.suppress(_Captured):
                torch.compile(call, backend=backend, fullgraph=True)().backward()
        if len(self.graphs) != 2:
            raise RuntimeError(f"{len(self.graphs)} graphs were captured, not one forward and one backward")

    def run(self, mode: TorchDispatchMode) -> None:
        """One step on fake tensors, with the mode around it."""
        forward, backward = self.graphs
        with FakeTensorMode(allow_non_fake_inputs=True):
            given = [_fresh(node.meta["val"]) for node in forward.graph.nodes if node.op == "placeholder"]
            with mode:
                made = torch.fx.Interpreter(forward).boxed_run(list(given))
                names = [getattr(node, "name", "") for node in _outputs(forward)]
                by_name = dict(zip(names, made, strict=True))
                del made
                wanted: list[Any] = []
                held: list[Any] = []  # the user holds the loss, and the engine its gradient, as in a plain step
                for node in (n for n in backward.graph.nodes if n.op == "placeholder"):
                    found = by_name.pop(node.name, None)
                    if found is None:
                        found = _fresh(node.meta["val"])
                        held.append(found)
                    wanted.append(found)
                    del found
                held += by_name.values()
                by_name.clear()
                grads = torch.fx.Interpreter(backward).boxed_run(wanted)
        del grads, given, held


def _outputs(graph: Any) -> list[Any]:
    (node,) = [n for n in graph.graph.nodes if n.op == "output"]
    return list(node.args[0])


def _fresh(value: Any) -> Any:
    """A tensor like a fake one of another mode."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
