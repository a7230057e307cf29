"""The speed at which a trial goes through its data."""


def throughput(samples: float, elements: float, seconds: float) -> dict[str, float]:
    """Return the rates by the names under which they are reported; empty if no time was spent.

    Args:
        samples: of all ranks; elements: values of the loss (tokens, for a language model).
        seconds: the time of training on them.
    """
    if seconds <= 0:
        return {}
    return {
        "perf/samples_per_s": samples / seconds,
        "perf/tokens_per_s": elements / seconds,
    }
