"""The experiments of the thesis' chapter 5, one file each."""

from __future__ import annotations

import time

from lowtide.bench.result import Experiment, Progress, Result
from lowtide.bench.thesis import across_models, feng_huang, granularity, prediction, square_root
from lowtide.bench.where import where

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.number: module.EXPERIMENT
    for module in (prediction, square_root, feng_huang, across_models, granularity)
}

__all__ = ["EXPERIMENTS", "conduct"]


def conduct(experiment: Experiment, quick: bool, progress: Progress) -> Result:
    """Run one experiment and note how long it took, and where."""
    wall, processor = time.perf_counter(), time.process_time()
    tables, notes = experiment.run(quick, progress)
    seconds = round(time.perf_counter() - wall, 1), round(time.process_time() - processor, 1)
    return Result(experiment.number, experiment.name, experiment.title, tables, notes, quick, seconds, where())
