"""How fast a trial goes through its data."""


def throughput(samples: float, elements: float, seconds: float) -> dict[str, float]:
    """Rates by the names under which they are reported; no time spent: none.

    Args:
        samples: of all ranks; elements: values of the loss (tokens, for a language model).
        seconds: in which they were learned from.
    """
    if seconds <= 0:
        return {}
    return {
        "perf/samples_per_s": samples / seconds,
        "perf/elements_per_s": elements / seconds,
    }
