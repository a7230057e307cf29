"""Names of training options in earlier versions: refused in new specs, read in recorded sweeps."""

from collections.abc import Mapping
from typing import Any

PREFIX = "training."  # of a parameter that sets a training option
OPTIONS = {  # today's names by earlier ones
    "recompute": "activation_checkpointing",
    "bucket_mb": "bucket_cap_mb",
    "tensor_ranks": "tensor_parallel",
    "average_every": "sync_every",
    "lr_batch": "lr_base_batch",
    "compress": "gradient_compression",
    "reshard": "reshard_after_forward",
    "offload": "cpu_offload",
    "watch": "log_layers_every",
    "batched": "trials_per_process",
    "init": "process_group",
}
WORDS = {"process_group": {"ours": "managed", "none": "user"}}  # today's by earlier ones


def options_today(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded training options with today's names and words."""
    names = {OPTIONS.get(name, name): value for name, value in options.items()}
    return {name: _word_today(name, value) for name, value in names.items()}


def params_today(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded values or domains by parameter; searched training options as of today."""
    names = {parameter_today(name): value for name, value in params.items()}
    return {
        name: _word_today(name.removeprefix(PREFIX), value) if name.startswith(PREFIX) else value
        for name, value in names.items()
    }


def parameter_today(name: str) -> str:
    """Return today's name of a recorded parameter."""
    option = name.removeprefix(PREFIX)
    return name if option == name else f"{PREFIX}{OPTIONS.get(option, option)}"


def _word_today(option: str, value: Any) -> Any:
    """Return a recorded value, list of values, or domain of an option in today's words."""
    match value:
        case str():
            return WORDS.get(option, {}).get(value, value)
        case list():
            return [_word_today(option, item) for item in value]
        case dict():
            words = {key: _word_today(option, inner) for key, inner in value.items()}
            return {**words, "when": value["when"]} if "when" in value else words
        case _:
            return value
