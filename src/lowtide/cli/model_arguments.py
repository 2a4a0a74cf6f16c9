"""The arguments that name a training step: model, inputs, settings, type, optimizer. Shared by commands."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lowtide.errors import InputError, LowtideError

if TYPE_CHECKING:
    from lowtide.models import LoadedModel


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """`MODEL --input --set --dtype --optimizer`, and `--seed`."""
    group = parser.add_argument_group("the training step")
    group.add_argument(
        "model",
        metavar="MODEL",
        help="torchvision:NAME, timm:NAME, hf:NAME (a type such as gpt2, a configuration or model class), or "
        "path/to/file.py:factory, which returns a model, (model, args) or (model, args, loss)",
    )
    group.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]SIZES[:TYPE[:BELOW]]",
        help="an input: 8x3x224x224, 2x128:int64, labels=8:int64:1000 (whole numbers below 1000); repeat it for more "
        "inputs; without it, what suits the model",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the model, its configuration or the factory: n_layer=4; repeatable",
    )
    group.add_argument("--dtype", metavar="TYPE", help="type of parameters and inputs: bfloat16, float16, float64, ...")
    group.add_argument("--optimizer", metavar="NAME", help="count an optimizer's state and step: adamw, sgd, ...")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of random weights and inputs (default 0)")


@dataclass(frozen=True)
class Call:
    """A model with the arguments of one call, ready for the library."""

    loaded: LoadedModel
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: str

    @property
    def title(self) -> str:
        return f"{self.loaded.name} on {self.inputs}" if self.inputs else self.loaded.name


def load_call(args: argparse.Namespace, device: str) -> Call:
    """The step that the arguments name, with its tensors on `device` (`meta` or `cpu`).

    Raises:
        InputError: if model, inputs or settings cannot be used.
    """
    from lowtide.models import load_model, parse_input, parse_settings

    specs = [parse_input(text) for text in args.input]
    loaded = load_model(args.model, parse_settings(args.set), device=device, dtype=args.dtype, seed=args.seed)
    positional, keyword = loaded.inputs(specs, seed=args.seed)
    return Call(loaded, positional, keyword, loaded.describe_inputs(specs))


@contextmanager
def running(call: Call) -> Generator[None]:
    """Turns any error of the model inside into one sentence that names the model and its inputs."""
    from lowtide.models.errors import first_line

    # On an error torch logs a traceback of its own before it raises.
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except InputError:
        raise
    except LowtideError as e:
        raise type(e)(f"{call.title}: {e}") from e
    except (Exception, SystemExit) as e:
        raise InputError(f"{call.title} does not run: {first_line(e)} (--traceback shows where)") from e
    finally:
        logger.setLevel(level)
