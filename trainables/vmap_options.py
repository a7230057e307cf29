"""The training options that trials training at once may have. Without torch."""

from collections.abc import Iterator, Mapping

# Options that may differ among the trials; all other options must be the same.
PER_TRIAL = (
    "clip",
    "weight_decay",
    "momentum",
    "schedule",
    "warmup",
    "lr_scaling",
    "lr_base_batch",
)
SUPPORTED: Mapping[str, tuple[object, ...]] = {  # the supported values of these options
    "strategy": ("single",),
    "precision": ("32-true", "64-true", "bf16-mixed"),
    "accumulate": (1,),
    "process_group": ("managed",),
    "clip_by": ("norm",),
    "float32_modules": ((),),
    "activation_checkpointing": (0,),
    "attention": ("auto",),
    "compile": ("none",),
    "memory_fraction": (1.0,),
    "optimizer": ("task", "sgd", "adamw"),
    "ema": (None,),
    "tokens_per_weight": (None,),
    "log_layers_every": (0,),
}


def unsupported(training: object) -> Iterator[tuple[str, str]]:
    """Yield each option with an unsupported value, and a text of its supported values."""
    for name, values in SUPPORTED.items():
        if getattr(training, name) not in values:
            yield name, " or ".join(as_text(value) for value in values)


def as_text(value: object) -> str:
    """Return a value as it is written in a spec."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == () else str(value)
