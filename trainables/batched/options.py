"""The training options that trials which train at once may have. Without torch."""

from collections.abc import Iterator, Mapping

# Options of one trial's own; in all others trials that train at once agree.
OWN = ("clip", "weight_decay", "momentum", "schedule", "warmup", "lr_scaling", "lr_batch")
ONLY: Mapping[str, tuple[object, ...]] = {  # options of which a batch knows these values
    "strategy": ("single",),
    "precision": ("32-true", "64-true", "bf16-mixed"),
    "accumulate": (1,),
    "init": ("ours",),
    "clip_by": ("norm",),
    "float32_modules": ((),),
    "recompute": (0,),
    "attention": ("auto",),
    "compile": ("none",),
    "memory_fraction": (1.0,),
    "optimizer": ("task", "sgd", "adamw"),
    "ema": (None,),
    "watch": (0,),
}


def unknown(training: object) -> Iterator[tuple[str, str]]:
    """Each option with a value that a batch cannot do, and the values that it can."""
    for name, known in ONLY.items():
        if getattr(training, name) not in known:
            yield name, " or ".join(shown(each) for each in known)


def shown(value: object) -> str:
    """As it is written in a spec."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == () else str(value)
