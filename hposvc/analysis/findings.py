"""Findings about a sweep: in plain sentences what it found, how sure that is, what it cost.

Every sentence is computed from the sweep's state, so it can be asked for while the sweep runs. What
is a forecast says so, and what can't be known is said to be unknown. The page `why` describes each
finding with its figures.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hposvc.analysis import devices, size_search
from hposvc.analysis.early_stopping import chances_of_stopped, savings
from hposvc.analysis.finding import Finding, Level
from hposvc.analysis.judgement import Judgement, Noise, judge, spans_decades
from hposvc.analysis.parameter_effects import Explained, explained
from hposvc.analysis.warnings import ends_of_range, warnings
from hposvc.estimate import CONFIDENCE, Estimate
from hposvc.state import summary
from hposvc.state.doubts import nearest_to_limits
from hposvc.state.finalists import SEEDLESS, of_best
from hposvc.state.prospects import FEWEST
from hposvc.state.summary import trial_values
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import (
    cost_of,
    cost_range_of,
    count,
    duration,
    finite,
    likely_percent,
    listed,
    number,
    numbers,
    percent,
    value_text,
)
from searchers import Float, Int, Value

UNLIKELY = 0.05  # probability that is not worth a word
SLIGHT = 0.01  # share of the range of all predictions that is not worth a word
LUCKY = 0.25  # deviations of the noise by which a value must be too good to be called lucky
MINOR = 0.03  # share of the differences below which a parameter does not matter
WORTH = 0.5  # deviations of the noise that a gain must reach to be worth more trials
TITLES = {
    "best": "The best configuration",
    "sure": "How sure that is",
    "gain": "What it gained",
    "cost": "What it cost",
    "mattered": "What mattered",
    "ruled out": "What was ruled out",
    "stopped": "What was stopped",
    "wrong": "What went wrong",
    "next": "What to try next",
    "reproduce": "How to reproduce it",
}


def why(sweep: str, state: SweepState, answers: Sequence[Explained] | None = None) -> list[Finding]:
    """Return the findings about a sweep as of its last event, one on each topic, and warnings.

    Args:
        sweep: the sweep's id, for the commands that sentences name.
        answers: what models said of the sweep's parameters; None: they are asked now.
    """
    judged = judge(state)
    if answers is None:
        answers = explained(state.spec, [*state.history()])
    minor = _minor(answers)
    mind = warnings(state, minor)
    return [
        _best(judged),
        _sure(judged, answers),
        _gain(judged),
        _cost(state),
        _mattered(state, answers),
        _ruled_out(state, answers),
        _stopped(judged),
        _wrong(mind),
        _next(sweep, judged, minor),
        _reproduce(sweep, judged),
        *mind,
    ]


def sureness(state: SweepState) -> list[str]:
    """Return how sure the best trial is, what it gained, and whether devices differed."""
    if state.best is None:
        return []
    said, unlike = [found.sentence for found in sure_and_gained(state)], devices.describe([state])
    return [*said, *([unlike] if unlike else [])]


def sure_and_gained(state: SweepState) -> list[Finding]:
    """Return the findings of how sure the best trial is, and of what it gained."""
    judged = judge(state)
    return [_sure(judged), _gain(judged)]


def worth(state: SweepState) -> list[str]:
    """Return what a sweep was worth in a few sentences; empty: it has no single best trial."""
    if state.best is None:
        return []
    judged = judge(state)
    stopped = _stopped(judged)
    saved = [stopped.sentence] if stopped.data else []
    gain = [] if state.spec.scale is not None else [_gain(judged).sentence]  # of one size
    return [*gain, *saved, _more_trials(judged)]


def _found(topic: str, sentence: str, level: Level = "info", **data: Any) -> Finding:
    return Finding(topic, level, TITLES[topic], sentence, data)


def _best(judged: Judgement) -> Finding:
    state, best = judged.state, judged.best
    if state.spec.several and state.front:
        names = " and ".join(metric.name for metric in state.spec.objectives)
        sentence = f"{count(len(state.front), 'trial')} can't be beaten in {names} at once."
        return _found("best", sentence, "good", front=list(state.front))
    if not state.trials:
        return _found("best", "No trial has begun yet, so there is no best configuration.", "bad")
    if best is None or best.value is None:
        within = " within the limits" if state.spec.limits else ""
        nearest = nearest_to_limits(state)
        sentence = f"No trial has a value{within}, so there is no best configuration"
        return _found("best", sentence + (f"; {nearest}." if nearest else "."), "bad")
    searched = [name for name in state.spec.space.searched if name in best.reported_params]
    values = {name: best.reported_params[name] for name in searched}
    words = listed([f"{name} {value_text(value, 4)}" for name, value in values.items()], 6)
    config = f" with {words}" if words else ""
    sentence = f"The best is {best.id}{config}: {trial_values(best)}."
    result = of_best(state)
    lowest = min(state.trials.values(), key=lambda trial: trial.loss)
    beaten = lowest.loss < best.loss and lowest.value is not None
    if result is not None and result.changed:
        sentence += f" It was chosen by {count(len(result.values), 'training')}"
        sentence += f"{result.of_what}: {best.metric.name} {number(result.mean)} on average."
    elif beaten and lowest.at_end and best.at_end and state.spec.trials.seeds is not None:
        sentence += f" {lowest.id} has {number(lowest.value)}, of {count(len(lowest.runs), 'seed')}"
        sentence += " alone, which does not show that it is better."
    elif result is not None and beaten:
        sentence += f" The means of finalists decide ({number(result.mean)} on average), not "
        sentence += f"single values, such as {lowest.id}'s {number(lowest.value)}."
    elif not best.at_end:
        within = " within the limits" if state.spec.limits else ""
        sentence += f" No trial{within} has come to its end."
    elif beaten and not lowest.at_end and lowest.selected is not None:
        sentence += f" {lowest.id} had {number(lowest.value)} at {state.spec.unit} "
        sentence += f"{lowest.selected[0]:,}, but has not come to its end."
    return _found("best", sentence, "good", trial=best.id, params=values, value=best.value)


def _sure(judged: Judgement, answers: Sequence[Explained] = ()) -> Finding:
    noise, best, known = judged.noise, judged.best, judged.expectations
    if best is None:
        sentence = "With several metrics it can't be told: noise is measured of one metric only."
        if not judged.state.front:
            sentence = "Nothing can be said of how sure it is while there is no best trial."
        return _found("sure", sentence)
    level: Level = "warning"
    chance, expected = judged.better_than(judged.runner_up), None
    if known is not None and judged.configuration is not None:
        expected = known.of(judged.configuration).map(best.metric.loss)
    if noise is None:
        sentence = (
            "How sure that is can't be told: no configuration was trained twice, so the noise of "
            f"{best.metric.name} is not known; `trials.seeds` or `baseline` would measure it."
        )
    elif noise.deviation == 0:
        level, sentence = "info", _without_noise(judged, best)
    elif expected is None:
        runs = "Equal runs" if noise.measured else "The last steps of a curve"
        sentence = (
            f"{runs} differ by about {number(noise.deviation, 4)}, and too few trials came to "
            "their ends to say how lucky the best one was."
        )
    else:
        sentence = _trained_again(judged, best, noise, expected)
        level = "good" if noise.measured and (chance or 0) > 0.9 else "info"
    words, preferred = _choice_of_models(judged, best, answers)
    return _found(
        "sure",
        sentence + words,
        level,
        noise=noise and {**noise.estimate.data("deviation"), "source": noise.source},
        runner_up=judged.runner_up,
        expected=expected and expected.data(),
        better_than_runner_up=chance,
        **preferred,
    )


def _trained_again(judged: Judgement, best: TrialState, noise: Noise, expected: Estimate) -> str:
    """Say what the best trial would give again, and how probably it beats the next."""
    sentence = f"Trained again, it should give {expected.sure_text(' on average')}"
    if best.metric.loss(expected.value) - best.loss > LUCKY * noise.deviation:
        sentence += ", for it was probably lucky"
    sentence += f"; single trainings differ by about {number(noise.deviation, 4)}"
    chance, equal = judged.better_than(judged.runner_up), judged.as_good_as(judged.runner_up)
    if chance is not None:
        sentence += f"; it is better than the next, {judged.runner_up}, with probability "
        sentence += likely_percent(chance)
        sentence += f", and just as good with {likely_percent(equal)}" if equal > UNLIKELY else ""
    if not noise.measured:
        sentence += ". That is a guess from its curves, as nothing was trained twice"
    return f"{sentence}."


def _choice_of_models(
    judged: Judgement, best: TrialState, answers: Sequence[Explained]
) -> tuple[str, dict[str, Any]]:
    """Return the trial that the models prefer, in words and data; empty: it is the best.

    After finalists were trained again their means decide, and where there is no noise the values.
    """
    state = judged.state
    answer = next((each for each in answers if each.learnt), None)
    decided = _is_exact(judged) or state.replicates.best_finalist is not None
    if answer is None or decided or state.spec.limits:
        return "", {}
    first, predicted = judged.first(best.id), answer.predicted
    if first not in predicted:
        return "", {}
    choice = min(predicted, key=lambda name: best.metric.loss(predicted[name]))
    extent = max(predicted.values()) - min(predicted.values())
    if abs(predicted[choice] - predicted[first]) <= SLIGHT * extent:
        return "", {}
    if predicted[choice] < 0 and spans_decades(
        [run for runs in judged.runs.values() for run in runs]
    ):
        return "", {}  # the models' scale is not that of these values, which are positive
    here, there = numbers(predicted[choice], predicted[first])
    words = f" The models of gp would rather choose {choice}: of it they expect {here} on average, "
    words += f"of {first} {there}."
    data = {"trial": choice, "expected": predicted[choice], "of_best": predicted[first]}
    return words, {"preferred": data}


def _without_noise(judged: Judgement, best: TrialState) -> str:
    what, so = SEEDLESS[0].upper() + SEEDLESS[1:], "in the first case differences are real"
    trials = judged.state.trials.values()
    ties = len({judged.first(trial.id) for trial in trials if trial.value == best.value})
    if ties > 1:
        return f"{what}; {ties:,} trials have the best value: {best.id} was first."
    return f"{what}; {so} as far as can be seen."


def _gain(judged: Judgement) -> Finding:
    best, default, known = judged.best, judged.default, judged.expectations
    over_default = over_median = None
    if known is not None and judged.configuration is not None:
        over_median = known.lead_over_median(judged.configuration)
        if default is not None:
            over_default = known.lead(judged.configuration, default.id)
    if best is None:
        several = judged.state.spec.several and judged.state.front
        reason = "there are several metrics" if several else "there is no best trial"
        return _found("gain", f"No gain is given, because {reason}.")
    if default is None:
        reason = _why_no_default(judged.state)
        if over_median is None:
            return _found("gain", f"No gain is given, because {reason}.")
        about = number(over_median.value, 4)
        sentence = f"Over the median of the trials that came to their ends it gains about {about}. "
        sentence += f"It can't be compared with the first trial: {reason}."
        return _found("gain", sentence, over_median=over_median.data())
    chance, tested = judged.better_than(default.id), judged.gain
    seen = judged.runs[default.id][0] - best.loss
    initial, space = judged.state.spec.initial, judged.state.spec.space
    unconditional = {name for name in space.searched if not space[name].when}
    chosen = initial and unconditional <= initial[0].keys()  # what is missing there was drawn
    name = f"the default ({default.id})" if chosen else f"the first trial ({default.id})"
    level: Level = "info"
    if judged.first(best.id) == default.id:
        sentence = f"It gained nothing: {name} is itself the best."
    else:
        sentence = f"Over {name} it gains {number(seen, 4)} as seen"
        if over_default is not None:
            again = " if both were trained again"
            about = f"{number(over_default.value, 4)}{again} (a guess from curves)"
            sentence += f", and about {over_default.sure_text(again) if judged.measured else about}"
        if over_median is not None:
            sentence += "; over the median of those that came to their ends it is about "
            sentence += number(over_median.value, 4)
        sentence += f"; {_noise_or_not(judged, chance)}."
        if tested is not None and not _is_exact(judged):
            level = "good" if tested.claimed else "warning"
    return _found(
        "gain",
        sentence,
        level,
        default=default.id,
        seen=seen,
        over_default=over_default and over_default.data(),
        over_median=over_median and over_median.data(),
        better_than_default=chance,
        luck=None if tested is None else tested.luck,
        more_than_noise=None if tested is None else tested.claimed,
    )


def _why_no_default(state: SweepState) -> str:
    """Say why the first trial, which others are compared with, has no result."""
    first = next(iter(state.trials.values()), None)
    if first is None:
        return "no trial has begun yet"
    if first.excluded:
        return "the first trial counts no longer"
    if first.at_end and not first.kept:
        pairs = zip(state.spec.bounds, first.excess, strict=True)
        broken = [
            f"{limit}{'' if math.isfinite(excess) else ', of which it has no value'}"
            for limit, excess in pairs
            if excess > 0
        ]
        return f"the first trial breaks a limit ({listed(broken, 2)})"
    if first.at_end:
        return "the value of the first trial is too large to compare with"
    if first.state == "FAILED":
        return "the first trial failed"
    if first.diverged:
        return "the first trial diverged"
    if first.state == "STOPPED":
        return f"the first trial was stopped at step {first.step:,}"
    return "the first trial has not come to its end yet"


def _is_exact(judged: Judgement) -> bool:
    """Return whether equal runs gave equal values."""
    return judged.noise is not None and judged.noise.deviation == 0


def _noise_or_not(judged: Judgement, chance: float | None) -> str:
    """Say whether a gain over the default is noise.

    Args:
        chance: the probability that the best is really better; None: unknown.
    """
    tested = judged.gain
    if tested is None:
        what = "too little" if judged.measured else "nothing"
        return f"whether that is more than noise can't be told, as {what} was trained twice"
    if _is_exact(judged):
        return SEEDLESS
    words = f"that is {'more than noise' if tested.claimed else 'perhaps only noise'}"
    if chance is None or judged.default is None:
        return words
    equal = judged.as_good_as(judged.default.id)
    worse = max(0.0, 1 - chance - equal)
    rest = f", just as good with {likely_percent(equal)}, worse with {likely_percent(worse)}"
    rest = rest if equal > UNLIKELY else ""
    return f"{words} (it is better with probability {likely_percent(chance)}{rest})"


def _markets(state: SweepState) -> str:
    """Say on which nodes the time was spent, by how they are paid for; empty: nobody asked."""
    gpus, spent = state.spec.resources.gpus_per_worker, state.market_s
    parts = [f"{cost_of(rank_s, gpus)} on {market} nodes" for market, rank_s in spent.items()]
    return f" Of that, {' and '.join(parts)}." if parts else ""


def _cost(state: SweepState) -> Finding:
    gpus = state.spec.resources.gpus_per_worker
    price = "" if state.money is None else f", or {state.spec.price.text(state.money)},"
    runs = len(state.replicates.trials)
    again = f" and {count(runs, 'second run')} of them" if runs else ""
    if runs and state.replicates.changed:
        again = f" and {count(runs, 'training')} of finalists with other values"
    used = [] if state.energy_kwh is None else summary.energy_used(state)
    energy = f" It used {', '.join(used)}." if used else ""
    return _found(
        "cost",
        f"It cost {cost_of(state.rank_s, gpus)}{price} in {duration(state.worked_s)}, "
        f"for {count(len(state.trials), 'trial')}{again}."
        f"{_markets(state)}{energy}",
        rank_s=state.rank_s,
        gpu_hours=state.gpu_hours,
        energy_kwh=state.energy_kwh,
        co2_kg=state.spec.price.co2_kg(state.energy_kwh),
        money=state.money,
        currency=state.spec.price.currency,
        elapsed_s=state.worked_s,
        trials=len(state.trials),
    )


def _minor(answers: Sequence[Explained]) -> list[str]:
    """Return the parameters that surely hardly matter for any metric."""
    if not answers or not all(answer.learnt for answer in answers):
        return []
    most = [{each.name: each.total.high for each in answer.importance} for answer in answers]
    return [name for name in most[0] if all(high.get(name, 1.0) < MINOR for high in most)]


def _mattered(state: SweepState, answers: Sequence[Explained]) -> Finding:
    if not state.spec.space.searched:
        return _found("mattered", "No parameter was searched.")
    learnt = [answer for answer in answers if answer.learnt and answer.importance]
    if not learnt:
        reason = "too few trials gave different values"
        if answers:
            reason = "models of half of the trials do not rank the other half better than chance"
        return _found("mattered", f"Which parameter mattered can't be told: {reason}.")
    sentence = "; ".join(map(_shares, learnt))
    metrics = {
        answer.metric: {share.name: share.total.data("share") for share in answer.importance}
        for answer in learnt
    }
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    return _found("mattered", sentence, metrics=metrics, confidence=CONFIDENCE)


def _shares(answer: Explained) -> str:
    first, *others = answer.importance
    shares = {each.name: each.total.value for each in others[:2]}
    seconds = [
        f"{name} {likely_percent(total)}" for name, total in shares.items() if total >= MINOR
    ]
    return (
        f"alone or with others, {first.name} explains {likely_percent(first.total.value)} of the "
        f"differences in {answer.metric} "
        f"({percent(CONFIDENCE)} sure: {percent(first.total.low)} to {percent(first.total.high)})"
        + (f", {' and '.join(seconds)}" if seconds else "")
    )


def _ruled_out(state: SweepState, answers: Sequence[Explained]) -> Finding:
    """Say which values of the most important parameter are worse for sure, as the model sees it."""
    nothing = _found("ruled out", "Nothing can be ruled out yet.")
    answer = answers[0] if len(answers) == 1 and answers[0].learnt else None
    if answer is None or not answer.slices:
        return nothing
    scale, metric = state.spec.scale, state.spec.objectives[0]
    slices = [each for each in answer.slices if scale is None or each.names[0] != scale.over]
    if not slices:
        return nothing
    top = slices[0]
    name, grid = top.names[0], top.grids[0]
    loss_G = np.array([metric.loss(float(value)) for value in top.mean])
    sure_G = np.isfinite(loss_G)
    if not sure_G.any():
        return nothing
    low = int(np.nanargmin(loss_G))
    margin_G = 2 * np.hypot(top.deviation, top.deviation[low])
    out_G = sure_G & (loss_G - loss_G[low] > margin_G)
    values = [grid[place] for place in np.flatnonzero(out_G)]
    if not values:
        sentence = f"Nothing is ruled out: the model is not sure of any value of {name}."
        return _found("ruled out", sentence, parameter=name, values=values)
    if isinstance(state.spec.space[name], Float | Int):
        words, out_G = _ranges(name, grid, out_G)
    else:
        words = f"{name} {', '.join(map(str, values))}"
    worst = float(np.nanmax(np.where(out_G, loss_G, -np.inf))) - float(loss_G[low])
    sentence = f"By the model, {words} can be ruled out: it expects {metric.name} to be up to "
    sentence += f"{number(worst, 4)} worse there"
    sentence += "; of `limits` it knows nothing." if state.spec.limits else "."
    return _found("ruled out", sentence, parameter=name, values=values)


def _ranges(name: str, grid: Sequence[Value], out_G: np.ndarray) -> tuple[str, np.ndarray]:
    """Return which ends of a range are ruled out, in words and on the grid."""
    kept, place_G = np.flatnonzero(~out_G), np.arange(len(grid))
    below, above = kept.min(), kept.max()
    words = []
    if below > 0:
        words.append(f"{name} up to {value_text(grid[below - 1], 4)}")
    if above < len(grid) - 1:
        words.append(f"{name} from {value_text(grid[above + 1], 4)}")
    if not words:
        return f"some values of {name} between those that are not", out_G
    return " and ".join(words), (place_G < below) | (place_G > above)


def _stopped(judged: Judgement) -> Finding:
    saved = savings(judged.state)
    if saved is None:
        return _found("stopped", "No trial was stopped early.")
    gpus = judged.state.spec.resources.gpus_per_worker
    about = f"saved about {cost_of(saved.rank_s.value, gpus)}"
    if saved.rank_s.known:
        saving = saved.rank_s
        between = cost_range_of(saving.low, saving.high, saving.value, gpus)
        about += f" ({percent(CONFIDENCE)} sure: {between})" if between else ""
    sentence = f"{count(saved.stopped, 'trial')} stopped early, which {about}"
    chances = chances_of_stopped(judged.state)
    suspect = max(chances, key=chances.__getitem__, default=None)
    wrong, chance = sum(chances.values()), chances[suspect] if suspect else 0.0
    if chances and judged.best is not None:
        number = "hardly any of them" if wrong < 0.5 else f"about {wrong:.0f} of them"
        sentence += f"; by the curves' model, {number} would have beaten the best"
        if chance > 0.1:
            sentence += f", most likely {suspect} ({likely_percent(chance)})"
    return _found(
        "stopped",
        f"{sentence}.",
        "warning" if wrong > 1 else "info",
        trials=saved.stopped,
        saved_rank_s=saved.rank_s.value,
        low_rank_s=finite(saved.rank_s.low),
        high_rank_s=finite(saved.rank_s.high),
        wrongly=wrong if chances else None,
        suspect=suspect,
        chance=chance,
    )


def _wrong(mind: Sequence[Finding]) -> Finding:
    titles = [finding.title for finding in mind]
    if not mind:
        return _found("wrong", "Nothing was found wrong.", "good", warnings=titles)
    first = "; ".join(title[0].lower() + title[1:] for title in titles[:3])
    more = f"; and {count(len(mind) - 3, 'warning')} more" if len(mind) > 3 else ""
    worst: Level = "bad" if any(finding.level == "bad" for finding in mind) else "warning"
    return _found("wrong", f"Mind this: {first}{more}.", worst, warnings=titles)


def _next(sweep: str, judged: Judgement, minor: Sequence[str]) -> Finding:
    """Say what to try next, the most useful first.

    Args:
        minor: parameters that hardly matter.
    """
    state, best, plateau = judged.state, judged.best, _plateau(judged)
    plan = judged.prospect if state.spec.scale is None else None  # which knows no sizes
    if not state.front:
        return _found("next", _without_best(sweep, state))
    hints = []
    if best is not None:
        ends = [(name, end) for name, end, _ in ends_of_range(best, state) if name not in minor]
        for name, end in ends[:2]:
            hints.append(f"widen {name} at its {'lower' if end == 'low' else 'upper'} end")
        if not judged.measured:
            hints.append("measure the noise (`baseline: {seeds: 5}` and `finalists: {seeds: 5}`)")
    if minor:
        what = "which hardly matter" if len(minor) > 1 else "which hardly matters"
        hints.append(f"fix {' and '.join(minor[:3])}, {what}")
    sentence = "; ".join(hints) or "nothing has to be changed"
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    if best is not None:
        sentence += f" {_more_trials(judged)}"
        if plan is not None and not plateau:
            sentence += f" `hposvc extend {sweep} --trials {plan.trials}` adds them."
    more = None
    if plan is not None:
        more = {
            "trials": plan.trials,
            **plan.gain.data("gain"),
            "chance": plan.chance,
            "rank_s": _prospect_rank_s(judged),
        }
    return _found("next", sentence, hints=hints, more=more, plateau=plateau)


def _without_best(sweep: str, state: SweepState) -> str:
    """Say what to do while no trial is the best."""
    trials = state.trials.values()
    if any(trial.diverged or trial.state == "FAILED" for trial in trials):
        return f"Look into the failures first: `hposvc logs {sweep}` shows what trials wrote."
    if any(trial.values for trial in trials):
        return "No trial is within the limits: widen the ranges, or loosen `limits`."
    if state.finished:
        return "No trial reported a value; check what the code reports, and the metric's name."
    return "Wait for the first value."


def _plateau(judged: Judgement) -> bool | None:
    """Return whether more trials gain too little to be worth it; None: it can't be told."""
    plan, noise = judged.prospect, judged.noise
    if plan is None:
        return None
    return plan.chance < 0.1 or (noise is not None and plan.gain.high < WORTH * noise.deviation)


def _more_trials(judged: Judgement) -> str:
    """Say what more trials are expected to gain, and cost; over sizes, how near the target is."""
    if judged.state.spec.scale is not None:
        found = size_search.judge(judged.state, "")
        return "There are too few results for a law of sizes." if found is None else found.sentence
    plan, spec, rank_s = judged.prospect, judged.state.spec, _prospect_rank_s(judged)
    if plan is None:
        return f"What more trials would gain can't be told from fewer than {FEWEST} values."
    if plan.gain.value == 0:
        return f"{plan.trials} more trials are not expected to gain anything."
    any_gain = f"any gain at all: {likely_percent(plan.chance)}"
    gain = plan.gain.sure_text(f" in {spec.objectives[0].name}", any_gain)
    sentence = f"{plan.trials} more trials are expected to gain about {gain}"
    if rank_s is not None:
        money = spec.money(rank_s)
        price = "" if money is None else f", or {spec.price.text(money)}"
        sentence += f" for about {cost_of(rank_s, spec.resources.gpus_per_worker)}{price}"
    worth = ", which is not worth it: the sweep is on a plateau" if _plateau(judged) else ""
    return f"{sentence}{worth}."


def _prospect_rank_s(judged: Judgement) -> float | None:
    """Return the rank-seconds of more trials, if they are like the others; None: no idea."""
    ended = [trial.rank_s for trial in judged.state.trials.values() if trial.over]
    if judged.prospect is None or not sum(ended):
        return None
    return judged.prospect.trials * sum(ended) / len(ended)


def _reproduce(sweep: str, judged: Judgement) -> Finding:
    front = judged.state.front
    trial = judged.best.id if judged.best is not None else next(iter(front), None)
    if trial is None:
        sentence = f"`hposvc audit {sweep}` has every decision of the sweep."
        return _found("reproduce", sentence, commands=[f"hposvc audit {sweep}"])
    commands = [f"hposvc repro {sweep} {trial}", f"hposvc audit {sweep} {trial}"]
    sentence = f"`{commands[0]}` trains {trial} again as it was, and `{commands[1]}` explains"
    return _found("reproduce", f"{sentence} every decision about it.", commands=commands)
