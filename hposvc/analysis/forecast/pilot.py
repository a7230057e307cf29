"""A pilot: a few short trials of a spec, to measure what a step takes."""

import os

from hposvc import spec as specs
from hposvc.analysis import short_sweep
from hposvc.analysis.forecast.evidence import Evidence, read
from hposvc.errors import fail
from hposvc.events import NOTHING, error_line
from hposvc.journal.home import Home
from hposvc.spec import SweepSpec

FEWEST, MOST = 6, 16  # trials of a pilot
STEPS = 4  # of each; the first one contains its start
# Sections that do not belong to a pilot: it ends by itself, and learns and records nothing.
LEFT_OUT = ("initial", "budget", "stop", "finalists", "register", "notify", "limits", "scale")


def pilot_spec(spec: SweepSpec) -> SweepSpec:
    """Return the spec of a few short trials whose configurations are spread over the space.

    As many trials run at once as in the sweep, and twice as many in all, so that slots are used
    a second time. A trial without fidelity cannot be short.
    """
    data = {key: value for key, value in specs.dump(spec).items() if key not in LEFT_OUT}
    parallel = spec.trials.parallel
    count = max(FEWEST, min(MOST, 2 * parallel if isinstance(parallel, int) else 8))
    data |= {"search": "sobol", "scheduler": "fifo", "warm_start": None, "name": "pilot"}
    data["trials"] = {"parallel": parallel, "max": min(count, spec.trials.max or count)}
    metrics = [{**vars(metric), "target": None} for metric in spec.objectives]
    data |= {"metrics": metrics, "metric": None} if spec.several else {"metric": metrics[0]}
    if spec.fidelity is not None:
        last = min(STEPS, spec.fidelity.max)
        data["fidelity"] = {"unit": spec.fidelity.unit, "min": 1, "max": last}
    return specs.load(data, NOTHING)


def run(spec: SweepSpec, home: Home, address: str | None) -> tuple[Evidence, int]:
    """Run a pilot of a spec for real; return what it shows, and how many trials fit at once.

    Raises:
        SpecError: no trial of the pilot got anywhere.
        OutOfReach: the cluster can never provide the resources.
        Interrupted: by Ctrl-C.
    """
    short = pilot_spec(spec)
    ran = short_sweep.run(short, f"pilot-{os.getpid()}", home, address)
    evidence = read(short, ran.events, "pilot")
    if evidence is None:
        failures = [trial.message for trial in ran.state.trials.values() if trial.message]
        first = error_line(failures[0]) if failures else f"it ended {ran.state.state}"
        raise fail(f"no trial of the pilot reported: {first}", "--pilot")
    return evidence, ran.slots
