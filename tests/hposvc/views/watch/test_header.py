from simulated_sweeps import make_spec
from watched_sweeps import begin, report, watched

from hposvc.events import Attached
from hposvc.views.watch.header import best_so_far, header


def lines_of(state, driver="alive"):
    return [
        line.plain
        for line in header("digits-1", state, state.elapsed_s, driver, best_so_far(state))
    ]


def test_it_says_state_best_progress_rungs_and_waits():
    events = [Attached(0.0, "here:1")]
    for number, loss in ((1, 0.5), (2, 0.7), (3, 0.2)):
        events += [
            *begin(f"t{number:04}", number, number),
            report(f"t{number:04}", number, number, 1, loss),
        ]
    spec = make_spec(scheduler="asha", budget={"wall": "1h"})
    state = watched(spec, events).state
    said = lines_of(state)
    assert said[0].startswith("digits-1  running · ")
    assert said[1].startswith("best   loss 0.2  t0003 at step 1  ")
    assert "0 of 12 · slots 3 of 3 busy" in said[2]
    assert "of 1h" in said[2]
    assert said[3].startswith("rungs  3 at 1 · 0 at 3")
    assert best_so_far(state) == [0.5, 0.5, 0.2]
