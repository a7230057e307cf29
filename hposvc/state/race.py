"""Seeds inside the search: which trial is trained with its next seed.

A trial that came to its end is trained with another seed only while its comparison with the best
trial is open, and the best trial only while another one may be better. With several metrics each
trial of the front is to have all its seeds.

Once there are no new trials, or a budget is nearly used up, the best one gets all its seeds, so
that people take home a mean. Until then further seeds have at most as many steps as the trials, the
closest rivals first: of trials that differ by less than the noise few are worth more.

Where a further seed gives the same values, the training has no noise, and there are no more seeds.

Source: racing as in Birattari, Stützle, Paquete and Varrentrapp, A racing algorithm for configuring
metaheuristics (2002), with evidence that holds however often one looks, in place of its test.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hposvc.state.evidence import PROOF, evidence
from hposvc.state.ranking import RankKey
from hposvc.state.replicates import UNLIKE
from hposvc.state.sweep import SweepState
from hposvc.state.trial import END, TrialState

FIRST = 3  # trials at their ends before it is worth to know the noise


def racers(state: SweepState) -> list[tuple[TrialState, int]]:
    """Return the trials whose next seed is to begin, with the number of that replicate."""
    seeds = state.spec.trials.seeds
    if seeds is None or state.halted or state.resting or state.noiseless:
        return []
    wanted = _of_race(state)
    if state.spec.several:  # the front
        wanted = state.trials.best() if state.closed is not None or _may_race(state) else []
    trials = (state.trials[name] for name in dict.fromkeys(wanted))
    ready = (trial for trial in trials if _is_ready(trial, seeds.max))
    most = 1 if state.trials.noise is None and not state.spec.several else None
    return [(trial, len(trial.seeds) + 1) for trial in islice(ready, most)]


def _is_ready(trial: TrialState, most: int) -> bool:
    """Return whether a trial may have another seed: all seeds so far came to their ends."""
    known = all(seed.at_end or seed in trial.failed_seeds for seed in trial.seeds)
    return known and len(trial.seeds) + 1 < most and trial.at_end and not trial.fails


def _of_race(state: SweepState) -> Iterable[str]:
    """Yield the trials that may be the best, and the best one beside them, for one metric."""
    results, noise = state.trials.completed(), state.trials.noise
    if not results:
        return
    best, trials = state.trials[state.trials.best()[0]], sum(map(len, results.values()))
    if state.closed is not None or best.meets_targets or _is_late(state, best):
        yield best.id
    if noise is None:  # every comparison is open, as one training tells nothing of the noise
        if trials >= FIRST and not state.replicates.trials.orders:
            names = (name for keys in reversed(results.values()) for *_, name in keys)
            yield from (name for name in names if _tells(state.trials[name]))
        return
    if not _may_race(state):
        return
    rivals = sorted(
        (gap, name, seeds)
        for seeds, keys in results.items()
        for gap, name in _open(best, seeds, keys, noise)
    )
    for _, name, seeds in rivals:
        if seeds >= best.place - END:
            yield best.id
        yield name


def _tells(trial: TrialState) -> bool:
    """Return whether a trial's curve has unlike values, so that a seed shows soon if it differs."""
    return len({*trial.steps.values()}) >= min(UNLIKE, len(trial.steps))


def _may_race(state: SweepState) -> bool:
    """Return whether further seeds had fewer steps than trials, those under way counted whole."""
    least = state.spec.trials.seeds.min if state.spec.trials.seeds else 1
    further = (
        seed.step if seed.over else state.spec.last_step or 1
        for name in state.replicates.seeded
        for seed in state.trials[name].seeds[least - 1 :]
    )
    return sum(further) < sum(step * count for step, count in state.trials.trials_by_step.items())


def _is_late(state: SweepState, best: TrialState) -> bool:
    """Return whether little more is left of a budget than the best trial's further seeds cost."""
    seeds, kept = state.spec.trials.seeds, state.spec.budget.reserve or 0.0
    missing = 0 if seeds is None else END + seeds.max - best.place
    one = state.spec.spending(best.seconds, best.rank_s, best.energy_kwh)
    so_far = state.spec.spending(state.elapsed_s, state.rank_s, state.energy_kwh)
    return any(
        limit * (1 - kept) - so_far[key][0] < cost * (missing + 1)
        for key, (cost, limit) in one.items()
    )


def _open(
    best: TrialState, seeds: int, keys: Sequence[RankKey], noise: float
) -> Iterator[tuple[float, str]]:
    """Yield the trials of so many seeds that may be better than the best, and by how much worse.

    That is in deviations of the noise.
    """
    common = min(seeds, best.place - END)
    loss = best.loss_at(END + common)
    for mine, _, name in keys:
        if name == best.id:
            continue
        gap = mine - loss
        if evidence(gap, common, noise) >= PROOF:
            break  # and so it is of all that follow
        yield gap * math.sqrt(common), name


def why_again(state: SweepState, trial: TrialState) -> str:
    """Return why a trial is trained with its next seed, as of now."""
    if not trial.at_end:
        return "its rungs wait for it"
    if trial.id in state.front:
        return "it is on the front" if state.spec.several else "it is the best so far"
    return f"it may be better than {state.best}"
