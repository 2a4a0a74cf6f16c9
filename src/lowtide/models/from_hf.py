"""`hf:NAME`: a model of transformers from its configuration, with random weights."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

from lowtide.errors import InputError
from lowtide.models.build import build
from lowtide.models.errors import building
from lowtide.models.inputs import InputSpec
from lowtide.models.loaded import Kwargs, LoadedModel, smallest_vocabulary
from lowtide.models.suggest import suggest

_BATCH, _LENGTH = 2, 128
# First table that knows the model type wins: BERT has a causal class too, but it is a masked language model.
_ENCODER_DECODER = ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES")
_OTHERS = (
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def load(name: str, settings: dict[str, Any], device: str, seed: int) -> LoadedModel:
    """The model of a type (`gpt2`), a configuration class (`GPT2Config`) or a model class (`GPT2LMHeadModel`), with
    the head that its type is trained with. Settings change the configuration.

    Raises:
        InputError: if transformers has no such name, the configuration has no such setting, or the model cannot be
            built.
    """
    transformers.logging.set_verbosity_error()
    config_class, model_class = _find(name)
    with building(f"hf:{name}", settings):
        config = _config(config_class, settings)
        chosen = model_class or _model_class(config)
        if chosen.__name__.endswith("SequenceClassification") and config.pad_token_id is None:
            config.pad_token_id = 0  # causal models find a sentence's last token by it, and refuse batches without
        model = build(lambda: chosen(config), device=device, seed=seed)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", None) or smallest_vocabulary(model)
    return LoadedModel(
        model,
        name,
        _default_inputs(model, config, text),
        first=model.main_input_name,
        vocabulary=vocabulary,
        complete=lambda kwargs, generator: _with_labels(model, config, kwargs, generator),
    )


def _find(name: str) -> tuple[Any, Any]:
    """Configuration class, and the model class if `name` is one."""
    types: dict[str, str] = dict(getattr(configuration_auto, "CONFIG_MAPPING_NAMES"))  # noqa: B009
    plain = {_plain(t): t for t in types}
    if _plain(name) in plain:
        return getattr(transformers, types[plain[_plain(name)]]), None
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if inspect.isclass(found):
        if issubclass(found, transformers.PretrainedConfig):
            return found, None
        if issubclass(found, transformers.PreTrainedModel) and found.config_class is not None:
            return found.config_class, found
    known = [*types, *types.values()]
    raise InputError(f"transformers has no model type or class {name!r}{suggest(name, known)}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _config(config_class: Any, settings: dict[str, Any]) -> Any:
    default: Any = config_class()
    known: dict[str, Any] = default.to_dict()
    for key in settings:  # a configuration keeps names it does not know without a word
        if not hasattr(default, key):
            raise InputError(f"{config_class.__name__} has no setting {key!r}{suggest(key, known)}")
    config = config_class(**settings)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # training does not read it, and it would hold every layer's keys and values
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id or 0
    return config


def _model_class(config: Any) -> Any:
    tables = (*_ENCODER_DECODER, *_OTHERS) if getattr(config, "is_encoder_decoder", False) else _OTHERS
    for table in tables:
        name = getattr(modeling_auto, table, {}).get(config.model_type)
        if name is not None:
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise InputError(f"transformers knows no model class for the type {config.model_type!r}: name the class itself")


def _default_inputs(model: Any, config: Any, text: Any) -> tuple[InputSpec, ...]:
    main: str = model.main_input_name
    if main == "input_ids":
        length = min(_LENGTH, getattr(text, "max_position_embeddings", None) or _LENGTH)
        return (InputSpec((_BATCH, length), "int64", main),)
    if main == "pixel_values":
        side: Any = getattr(config, "image_size", None) or 224
        sides: tuple[int, ...] = (side, side) if isinstance(side, int) else tuple(side)
        return (InputSpec((_BATCH, getattr(config, "num_channels", 3), *sides), "", main),)
    if main == "input_features" and hasattr(config, "num_mel_bins"):
        frames = 2 * getattr(config, "max_source_positions", 1500)
        return (InputSpec((_BATCH, config.num_mel_bins, frames), "", main),)
    return ()


def _with_labels(model: Any, config: Any, kwargs: Kwargs, generator: torch.Generator) -> Kwargs:
    """Labels as the model's own loss wants them: the ids themselves, a class per image, or random target ids."""
    if "labels" in kwargs or "labels" not in inspect.signature(model.forward).parameters:
        return kwargs
    main: Any = kwargs.get(model.main_input_name)
    if main is None:
        return kwargs
    if not main.is_floating_point():
        labels = main.clone() if _per_token(model) else _integers((main.shape[0],), config.num_labels, main, generator)
    elif getattr(config, "is_encoder_decoder", False):
        labels = _integers((main.shape[0], _LENGTH), config.vocab_size, main, generator)
    elif type(model).__name__.endswith("Classification"):
        labels = _integers((main.shape[0],), config.num_labels, main, generator)
    else:
        return kwargs
    return {**kwargs, "labels": labels}


def _per_token(model: Any) -> bool:
    return not type(model).__name__.endswith(("SequenceClassification", "MultipleChoice"))


def _integers(shape: tuple[int, ...], below: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if like.is_meta:
        return torch.empty(shape, dtype=torch.int64, device="meta")
    return torch.randint(below, shape, generator=generator).to(like.device)
