"""The networks of the experiments, by name."""

from __future__ import annotations

from lowtide.bench.models import coca, cyclegan, gnmt, library
from lowtide.bench.models.network import Network, Recipe

RECIPES: dict[str, Recipe] = {r.name: r for r in (*library.RECIPES, cyclegan.RECIPE, gnmt.RECIPE, coca.RECIPE)}

__all__ = ["RECIPES", "Network", "Recipe"]
