"""A page per solver, from its docstring and its settings; and what all of them find on the same problems."""

from __future__ import annotations

import warnings
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

import torch
from torch import nn

import lowtide
from docs.generate.docstring import parse
from lowtide import Chain, Graph, InputError, Step
from lowtide.planning.solve import SOLVERS, Solver, pick
from lowtide.units import format_bytes, format_percent


class Block(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))))


@cache
def example_step() -> Step:
    """A small residual network: its input and 64 images of 16x16, two blocks."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Block() for _ in range(2)), nn.Flatten(), nn.Linear(2048, 10))
    return lowtide.trace(net.to("meta"), (torch.empty(64, 3, 16, 16, device="meta"),))


@cache
def example_chain() -> Chain:
    """That network as a chain of its modules."""
    return lowtide.reduce(example_step(), "module")


@cache
def _smallest() -> dict[str, Any]:
    """One problem of each kind, as small as can be."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).to("meta")
    step = lowtide.trace(net, (torch.empty(1, 2, device="meta"),))
    return {
        "a chain": Chain.from_arrays(a=[1, 1, 1]),
        "a step": step,
        "a graph": Graph((1, 1, 1), (0.0, 1.0, 1.0), ((0, 1), (1, 2))),
    }


@cache
def _takes(name: str) -> tuple[str, ...]:
    kinds: list[str] = []
    for kind, problem in _smallest().items():
        try:
            lowtide.solve(problem, name)
        except InputError:
            continue
        kinds.append(kind)
    return tuple(kinds)


def pages() -> dict[str, str]:
    """Path in the documentation -> Markdown."""
    return {f"solvers/{name}.md": page(solver) for name, solver in SOLVERS.items()}


def page(solver: Solver) -> str:
    """What the solver says of itself, what it takes, its settings."""
    doc = parse(type(solver).__doc__)
    kinds = _takes(solver.name)
    auto = [kind for kind in kinds if pick(_smallest()[kind]) == solver.name]
    if solver.name == pick(_smallest()["a step"], 1):
        auto.append("a step with a budget")
    facts = [f"* takes {', '.join(kinds)}"]
    facts.append("* proves its plan to be the best of its class" if solver.exact else "* proves nothing about its plan")
    if auto:
        facts.append(f"* what `auto` takes for {', '.join(auto)}")
    parts = [f"# {solver.name}", doc.summary, "\n".join(facts), doc.text]
    parts += [s.markdown() for s in doc.sections if s.head != "Attributes"]
    parts.append(_settings(solver))
    how = f'lowtide.solve(problem, "{solver.name}")'
    made = f"{type(solver).__module__.removeprefix('lowtide.')}"
    parts.append(f"```python\nimport lowtide\n\n{_problem(kinds)}\nprint({how})\n```")
    parts.append(f"Class `{type(solver).__name__}` in `lowtide.{made}`.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _problem(kinds: tuple[str, ...]) -> str:
    """Code that makes a problem of the first kind."""
    if kinds[0] == "a chain":
        return "problem = lowtide.Chain.from_arrays(a=[4, 8, 8, 6, 6, 4, 4, 2])"
    return (
        "import torch\nfrom torch import nn\n\n"
        "net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))\n"
        "problem = lowtide.trace(net, (torch.ones(32, 8),))"
    )


def _settings(solver: Solver) -> str:
    doc = parse(type(solver).__doc__).section("Attributes")
    told = doc.entries() if doc else {}
    for base in type(solver).__mro__[1:]:
        more = parse(base.__doc__).section("Attributes") if base.__module__.startswith("lowtide.") else None
        told = {**(more.entries() if more else {}), **told}
    rows = [
        f"| `{f.name}` | `{'' if f.default is MISSING else f.default!r}` | {told.get(f.name, '')} |"
        for f in fields(solver)
    ]
    return "\n".join(["## Settings", "", "| setting | default | |", "|---|---|---|", *rows]) if rows else ""


def table() -> str:
    """All solvers, with links."""
    rows: list[str] = []
    for name, solver in SOLVERS.items():
        kinds = ", ".join(kind.split()[-1] for kind in _takes(name))
        rows.append(f"| [`{name}`]({name}.md) | {solver.summary} | {kinds} | {'yes' if solver.exact else ''} |")
    return "\n".join(["| solver | | takes | exact |", "|---|---|---|---|", *rows])


def comparison() -> str:
    """Peak and added work of every solver on the example, as a chain and as a step."""
    chain, step = example_chain(), example_step()
    rows = ["| solver | peak on the chain | peak on the step | added FLOPs on the step |", "|---|---|---|---|"]
    for name in SOLVERS:
        on_chain = _solved(chain, name) if "a chain" in _takes(name) else None
        on_step = _solved(step, name) if "a step" in _takes(name) else None
        added = on_step.plan.recompute_flops / step.total_flops if on_step and on_step.plan else None
        cells = [format_bytes(s.peak_bytes) if s else "" for s in (on_chain, on_step)]
        rows.append(f"| `{name}` | {cells[0]} | {cells[1]} | {'' if added is None else format_percent(added)} |")
    return "\n".join(rows)


def _solved(problem: Any, name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return lowtide.solve(problem, name)
        except InputError:  # too large for it, or a package is missing
            return None
