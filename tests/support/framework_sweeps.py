"""Sweeps over the learning rate of a training with a framework, in this process."""

import hposvc


def sweep(train, home, metric, rates, **sections):
    """Run a sweep of one trial to its end, or what `sections` make of it."""
    low, high = rates
    given = {
        "metric": {"name": metric, "goal": "minimize"},
        "parameters": {"rate": {"min": low, "max": high, "log": True}},
        "trials": {"max": 1},
        "scheduler": "fifo",
        "search": "random",
        "engine": "local",
        "tracking": {"send_to": []},
    }
    return hposvc.Sweep(train, **{**given, **sections}).run(home, progress=False)
