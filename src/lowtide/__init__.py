"""Lowtide: the least peak memory for training a PyTorch model, with bit-identical gradients.

The planning half (`lowtide.planning`) is plain Python and numpy; the acting half (`lowtide.acting`) needs torch and is
imported when one of its names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lowtide.errors import InputError, LowtideError, PlanError, ReplayError, TraceError
from lowtide.planning import chain
from lowtide.planning.chain import Chain, Stage
from lowtide.planning.check import check
from lowtide.planning.graph import Graph
from lowtide.planning.plan import Plan, load
from lowtide.planning.reduce import lift, reduce
from lowtide.planning.simulate import Timeline, simulate
from lowtide.planning.solve import SOLVERS, Solution, solve
from lowtide.planning.step import Category, Step
from lowtide.planning.tradeoff import Curve

if TYPE_CHECKING:
    from lowtide.acting.api import plan
    from lowtide.acting.apply import apply, checkpoint, remat
    from lowtide.acting.fit import Fit, fit
    from lowtide.acting.measure import Measurement, measure
    from lowtide.acting.trace import trace
    from lowtide.acting.tradeoff import tradeoff
    from lowtide.acting.verify import Verdict, verify

__version__ = "0.1.0"

_LAZY = {
    "plan": "lowtide.acting.api",
    "trace": "lowtide.acting.trace",
    "remat": "lowtide.acting.apply",
    "apply": "lowtide.acting.apply",
    "checkpoint": "lowtide.acting.apply",
    "measure": "lowtide.acting.measure",
    "Measurement": "lowtide.acting.measure",
    "tradeoff": "lowtide.acting.tradeoff",
    "fit": "lowtide.acting.fit",
    "Fit": "lowtide.acting.fit",
    "verify": "lowtide.acting.verify",
    "Verdict": "lowtide.acting.verify",
}

__all__ = [
    "SOLVERS",
    "Category",
    "Chain",
    "Curve",
    "Fit",
    "Graph",
    "InputError",
    "LowtideError",
    "Measurement",
    "Plan",
    "PlanError",
    "ReplayError",
    "Solution",
    "Stage",
    "Step",
    "Timeline",
    "TraceError",
    "Verdict",
    "apply",
    "chain",
    "check",
    "checkpoint",
    "fit",
    "lift",
    "load",
    "measure",
    "plan",
    "reduce",
    "remat",
    "simulate",
    "solve",
    "trace",
    "tradeoff",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
