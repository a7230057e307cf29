"""A baseline: the first trial is trained with several seeds, to measure the noise of the metric."""

from random import Random

import pytest
from replicated import LAST, Seeded, check_replicates
from rich.console import Console
from simulated_sweeps import fold, make_spec

from hposvc.analysis.audit import phrasing
from hposvc.driver.proposals import propose
from hposvc.events import Ordered, Proposed
from hposvc.reporting.charts import charts
from hposvc.reporting.history import History
from hposvc.state import summary
from hposvc.verbs import trials
from hposvc.views import dashboard
from hposvc.views import replicates as view

BASELINE = {"seeds": 3, "params": {"lr": 0.001}}


class NoisyReplicates(Seeded):
    """A simulation in which replicates alone are noisy."""

    noise = 0.0

    def _call(self, order, step):
        (metrics, left_out), seconds = super(Seeded, self)._call(order, step)
        scatter = Random(f"{order.seed_of} {step}").gauss(0, self.noise) if order.replicate else 0.0
        return ({"loss": metrics["loss"] + scatter}, left_out), seconds


class VeryNoisyReplicates(NoisyReplicates):
    noise = 1.0


def baseline_spec(**sections):
    return make_spec(scheduler={"type": "asha"}, baseline=BASELINE, **sections)


def test_a_baseline_is_the_first_trial_with_several_seeds_hidden_from_the_search(lab):
    spec = baseline_spec(trials={"max": 6, "parallel": 2})
    lab.run(spec, backend=Seeded)
    events = lab.events()
    state = check_replicates(spec, events)
    assert (len(state.trials), state.state) == (6, "COMPLETED")
    first = state.trials["t0001"]
    assert (first.params["lr"], first.note["source"]) == (0.001, "baseline")
    assert [trial.step for trial in state.replicates.baseline] == [LAST] * 3
    assert len(set(state.replicates.baseline_values)) == 3  # other seeds, other values
    orders = [event.order for event in events if isinstance(event, Ordered)]
    assert [order.replicate for order in orders[:4]] == [0, 1, 2, 3]  # before further trials
    assert state.rank_s > state.trials.rank_s_at(state.now)  # their cost counts
    assert "over 3 seeds" in str(view.baseline(state))
    rows = summary.trials(state, {})
    assert [row.trial for row in rows if row.baseline] == ["t0001"]
    [best] = summary.front("s", state, {})
    assert best.baseline is (state.best == "t0001")
    shown = {chart.kind: chart.data for chart in charts(History.of(spec, events))}
    assert shown["curves"]["baseline"] == "t0001"
    bars = shown["timeline"]["bars"]
    marked = [name for name, mark in zip(bars["trial"], bars["baseline"], strict=True) if mark]
    assert marked == ["t0001", "t0001.1", "t0001.2", "t0001.3"]
    console = Console(width=150)
    with console.capture() as text:
        console.print(trials.table(rows, spec, state.front))
        console.print(dashboard.status_view("s", state, "none", True, False))
    assert "t0001 baseline" in text.get()


def test_a_finalist_that_was_the_baseline_shares_its_replicates(lab):
    spec = baseline_spec(trials={"max": 1, "parallel": 2}, finalists={"top": 1, "seeds": 3})
    lab.run(spec, backend=Seeded)
    state = check_replicates(spec, lab.events())
    assert state.replicates.best_finalist == "t0001"
    assert state.replicates.values("t0001") == state.replicates.baseline_values
    assert len(state.replicates.trials) == 3


def gp_spec():
    baseline = {"seeds": 5, "params": {"lr": 0.001}}
    return make_spec(search="gp", baseline=baseline, trials={"max": 8, "parallel": 1})


def test_the_scatter_of_the_replicates_is_the_noise_that_a_proposal_of_gp_believes_in(lab):
    spec = gp_spec()
    believed = {}
    for backend in (NoisyReplicates, VeryNoisyReplicates):
        state = lab.run(spec, backend.__name__, backend=backend)
        assert [len(seen.repeats) for seen in state.history()] == [5] + [0] * 7
        first = next(t for t in state.trials.values() if t.note["source"] == "model")
        believed[backend] = first.note["noise"]
        assert f"noise {first.note['noise']:.5g}" in phrasing.origin(spec, first.note)
    assert believed[NoisyReplicates] < 0.1
    assert 0.3 < believed[VeryNoisyReplicates] < 3.0


@pytest.mark.parametrize("search", ["gp", {"method": "gp", "repeats": True}], ids=str)
def test_every_proposal_follows_from_the_journal_before_it(lab, search):
    """The replicates' results come at any time between those of other trials."""
    asha = {"type": "asha"}
    trials = {"max": 10, "parallel": 3}
    spec = make_spec(search=search, scheduler=asha, baseline=BASELINE, trials=trials)
    searcher = spec.searcher()
    lab.run(spec, backend=Seeded)
    events = lab.events()
    seen_repeats = set()
    for place, event in enumerate(events):
        if isinstance(event, Proposed):
            history = fold(spec, events[:place]).history()
            seen_repeats.add(sum(len(seen.repeats) for seen in history))
            again = propose(spec, searcher, history)
            assert again is not None
            assert (again.params, again.note) == (event.params, event.note)
    assert len(seen_repeats) > 1
    state = check_replicates(spec, events)
    repeats = [trial for trial in state.trials.values() if "repeat_of" in trial.note]
    assert len(repeats) == (0 if search == "gp" else 1)
    for trial in repeats:
        assert trial.params == state.trials[trial.note["repeat_of"]].params
