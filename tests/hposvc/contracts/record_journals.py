"""Record journals of this version, for later versions to replay.

`python tests/hposvc/contracts/record_journals.py`, once, whenever `events.VERSION` has grown: the
files of earlier versions stay as they are.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, f"{HERE.parents[1] / 'support'}")

from simulated_sweeps import CALLS, Flaky, Lab, make_several, make_spec  # noqa: E402
from test_recorded_journals import facts  # noqa: E402

from hposvc import spec as specs  # noqa: E402
from hposvc.backends.simulate import Simulation  # noqa: E402
from hposvc.driver import loop  # noqa: E402
from hposvc.events import VERSION, to_json  # noqa: E402
from hposvc.journal.database import Store  # noqa: E402
from hposvc.journal.journal import Journal  # noqa: E402

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
RETRIES = {"infra_retries": 50, "user_retries": 1}
FINALISTS = {"top": 2, "seeds": 2}
TARGET = {"name": "loss", "goal": "minimize", "target": 0.3}
PBT = {"type": "pbt", "interval": 2, "mutate": {"lr": {}}}
SMALL = {"max": 6, "parallel": 3}
Request = dict[str, Any]  # verb, and changes


def asking(lab: Lab, turn: int, request: Request):
    """Return a function that makes the request in a turn of the driver's."""
    turns = iter(range(10**6))

    def interrupted() -> bool:
        if next(turns) == turn:
            lab.journal.request("s", **request)
        return False

    return interrupted


def record(
    name: str,
    spec: specs.SweepSpec,
    *requests: Request,
    backend: type[Simulation] = Simulation,
    during: tuple[int, Request] | None = None,
) -> None:
    """Run a sweep to its end, and on from there after the requests, and write its journal."""
    CALLS.clear()
    with TemporaryDirectory() as folder:
        lab = Lab(Journal(Store(f"sqlite:///{folder}/x.db")), Path(folder))
        heed = (lambda: False) if during is None else asking(lab, *during)
        state = lab.run(spec, backend=backend, interrupted=heed)
        for request in requests:
            if request:
                lab.journal.request("s", **request)
            state = lab.run(spec, backend=backend)
        head = {"spec": {**specs.dump(spec), "folder": None}, "expected": facts(state)}
        rows = [[event.kind, event.time, json.loads(to_json(event))] for event in lab.events()]
        lines = [json.dumps(head, sort_keys=True), *(json.dumps(row) for row in rows)]
        text = "\n".join([*lines, ""])
    (HERE / "recorded" / f"v{VERSION}-{name}.jsonl").write_text(text.replace(folder, "FOLDER"))


def main() -> None:
    loop.POLL_S = 0.0
    extend = {"verb": "extend", "changes": {"trials.max": "+4"}}
    longer = {"verb": "extend", "changes": {"fidelity.max": 12, "metric.target": None}}
    shorter = {"verb": "extend", "changes": {"fidelity.max": 3}}
    asha = {"type": "asha", "eta": 3}
    spec = make_spec(scheduler=asha, engine=TROUBLED, failure=RETRIES)
    record("asha-extended", spec, extend, backend=Flaky)
    spec = make_spec(scheduler={**asha, "mode": "promote"}, engine=TROUBLED)
    record("promote-stopped-retried", spec, {"verb": "retry"}, during=(30, {"verb": "stop"}))
    spec = make_spec(scheduler={"type": "hyperband", "eta": 3})
    record("hyperband-paused", spec, {}, during=(15, {"verb": "pause"}))
    spec = make_spec(scheduler=PBT, trials=SMALL, engine=TROUBLED)
    record("pbt", spec, backend=Flaky)
    spec = make_spec(scheduler={"type": "median", "min_trials": 2}, metric=TARGET)
    record("median-target-longer", spec, longer, shorter)
    spec = make_spec(finalists=FINALISTS, trials=SMALL)
    record("finalists", spec, backend=Flaky)
    record("front", make_several(trials={"max": 8, "parallel": 3}))
    record("open-ended", make_spec(fidelity=None, trials={"max": 5, "parallel": 2}))


if __name__ == "__main__":
    main()
