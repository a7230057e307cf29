"""Seeds inside the search: which trial is trained with its next seed.

A trial that came to its end is trained with another seed only while its comparison with the best
trial is open, and the best trial only while another one may be better. Seeds are the same for all
trials, so that differences are of the configurations. With several metrics each trial of the front
is to have all its seeds.

Once there are no new trials, or a budget is nearly used up, the best one gets all its seeds, so
that people take home a mean. Where a further seed gives the same values, the training has no noise,
and there are no more seeds.

Source: racing as in Birattari, Stützle, Paquete and Varrentrapp, A racing algorithm for configuring
metaheuristics (2002), with evidence that holds however often one looks, in place of its test.
"""

from collections.abc import Iterator
from itertools import takewhile

from hposvc.controller.stopping import decided, meets_target
from hposvc.events import NO_NOISE, Event
from hposvc.state.evidence import DOUBT, evidence
from hposvc.state.finalists import SEEDLESS
from hposvc.state.ranking import RankKey
from hposvc.state.sweep import SweepState
from hposvc.state.trial import END, TrialState

FIRST = 3  # trials at their ends before it is worth to know the noise
ALIKE = 5  # reports of a further seed that are those of the first one
VALUES = 3  # unlike values among them, so that it is no chance


def racers(state: SweepState) -> list[tuple[TrialState, int]]:
    """Return the trials whose next seed is to begin, with the number of that replicate."""
    seeds = state.spec.trials.seeds
    if seeds is None or state.halted or state.resting or state.noiseless:
        return []
    wanted = _of_front(state) if state.spec.several else _of_race(state)
    chosen = dict.fromkeys(trial.id for trial in wanted)
    trials = (state.trials[name] for name in chosen)
    return [(trial, len(trial.seeds) + 1) for trial in trials if _is_ready(trial, seeds.max)]


def _is_ready(trial: TrialState, most: int) -> bool:
    """Return whether a trial may have another seed: all seeds so far came to their ends."""
    known = all(seed.state == "COMPLETED" or seed in trial.failed_seeds for seed in trial.seeds)
    return known and len(trial.seeds) + 1 < most and trial.at_end and not trial.fails


def _of_front(state: SweepState) -> Iterator[TrialState]:
    """Yield the trials of the front."""
    yield from (state.trials[name] for name in state.trials.best())


def _of_race(state: SweepState) -> Iterator[TrialState]:
    """Yield the trials that may be the best, and the best one if there are any, for one metric."""
    results, noise = state.trials.completed()
    names = state.trials.best()
    if not results:
        return
    best, trials = state.trials[names[0]], sum(map(len, results.values()))
    if state.closed is not None or meets_target(best) or _is_late(state, best):
        yield best
    if noise is None:  # every comparison is open, as one training tells nothing of the noise
        if trials >= FIRST and not state.replicates.trials.orders:
            yield best
        return
    tried = best.place - END
    rivals = [
        (count, state.trials[name])
        for count, keys in results.items()
        for name in _open(best, count, keys, noise)
    ]
    if any(count >= tried for count, _ in rivals):
        yield best
    yield from (rival for count, rival in rivals if count <= tried)


def _is_late(state: SweepState, best: TrialState) -> bool:
    """Return whether little more is left of a budget than the best trial's further seeds cost."""
    seeds, kept = state.spec.trials.seeds, state.spec.budget.reserve or 0.0
    missing = 0 if seeds is None else END + seeds.max - best.place
    one = state.spec.spending(best.seconds, best.rank_s)
    so_far = state.spec.spending(state.elapsed_s, state.rank_s)
    return any(
        limit * (1 - kept) - so_far[key][0] < cost * (missing + 1)
        for key, (cost, limit) in one.items()
    )


def _open(best: TrialState, count: int, keys: list[RankKey], noise: float) -> Iterator[str]:
    """Yield the trials of so many seeds, lowest loss first, that may be better than the best."""
    common = min(count, best.place - END)
    loss = best.loss_at(END + common)

    def is_open(key: RankKey) -> bool:
        return evidence(key[0] - loss, common, noise) < DOUBT

    others = (key for key in keys if key[2] != best.id)
    yield from (name for *_, name in takewhile(is_open, others))


def stop_equal(trial: TrialState, first: TrialState, time: float) -> list[Event]:
    """Return the end of a further seed that repeats the reports of the first one.

    Two different values at most may be alike by chance, as in the first steps of a game.
    """
    count = len(trial.steps)
    if count < ALIKE or trial.intent is not None:
        return []
    if any(first.steps.get(step) != value for step, value in trial.steps.items()):
        return []
    if len({*trial.steps.values()}) < VALUES:
        return []
    return [decided(time, trial, "stop", NO_NOISE, SEEDLESS)]
