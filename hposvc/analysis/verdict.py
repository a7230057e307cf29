"""The verdict on a sweep: in plain sentences what it found, how sure that is, what it cost.

Every sentence is computed from the sweep's state, so it can be asked for while the sweep runs. What
is a forecast says so, and what can't be known is said to be unknown. docs/verdict.md describes each
finding with its figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hposvc.analysis import advice, devices, mattered
from hposvc.analysis.amounts import (
    cost_of,
    cost_range_of,
    count,
    duration,
    figure,
    figures,
    percent,
    share,
)
from hposvc.analysis.cut_short import cut_short
from hposvc.analysis.explained import Explained, explained
from hposvc.analysis.finding import Finding, Level, finite
from hposvc.analysis.judged import Judged
from hposvc.analysis.noise import Noise
from hposvc.analysis.savings import CONFIDENCE
from hposvc.analysis.shrinkage import LEVEL, Expected
from hposvc.analysis.warnings import warnings
from hposvc.state.doubts import nearest_to_limits
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from searchers.values import as_text

UNLIKELY = 0.05  # probability that is not worth a word
SLIGHT = 0.01  # share of the range of all predictions that is not worth a word
LUCKY = 0.25  # deviations of the noise by which a value must be too good to be called lucky


@dataclass(frozen=True)
class Verdict:
    """Findings on what to believe of a sweep: ten, and warnings."""

    findings: tuple[Finding, ...]  # ten, one for each topic, and the warnings

    @property
    def sentences(self) -> list[Finding]:
        """The ten findings, in the order in which a person asks."""
        return [finding for finding in self.findings if finding.topic != "warning"]

    @property
    def warnings(self) -> list[Finding]:
        """Findings that warn."""
        return [finding for finding in self.findings if finding.topic == "warning"]

    def beside(self, topics: Sequence[str]) -> list[Finding]:
        """Return the findings on other topics than these, which are shown elsewhere."""
        return [finding for finding in self.findings if finding.topic not in topics]

    def data(self) -> list[dict[str, Any]]:
        """Return the findings as JSON."""
        return [
            {
                "topic": finding.topic,
                "level": finding.level,
                "title": finding.title,
                "sentence": finding.sentence,
                "data": dict(finding.data),
            }
            for finding in self.findings
        ]


def verdict(sweep: str, state: SweepState, answers: Sequence[Explained] | None = None) -> Verdict:
    """Return the verdict on a sweep as of its last event.

    Args:
        sweep: the sweep's id, for the commands that sentences name.
        answers: what models said of the sweep's parameters; None: they are asked now.
    """
    judged = Judged(state)
    if answers is None:
        answers = explained(state.spec, [*state.history()])
    minor = mattered.minor(answers)
    mind = warnings(state, minor)
    ten = (
        _best(judged),
        _with_choice_of_models(_sure(judged), judged, answers),
        _gain(judged),
        _cost(judged),
        mattered.parameters(state, answers),
        mattered.ruled_out(state, answers),
        _stopped(judged),
        _wrong(mind),
        advice.next_step(sweep, judged, minor),
        _reproduce(sweep, judged),
    )
    return Verdict((*ten, *mind))


def sureness(state: SweepState) -> list[str]:
    """Return how sure the best trial is, what it gained, and whether devices differed."""
    if state.best is None:
        return []
    judged, unlike = Judged(state), devices.describe([state])
    return [_sure(judged).sentence, _gain(judged).sentence, *([unlike] if unlike else [])]


def worth(state: SweepState) -> list[str]:
    """Return what a sweep was worth in a few sentences; empty: it has no single best trial."""
    if state.best is None:
        return []
    judged = Judged(state)
    stopped = _stopped(judged)
    saved = [stopped.sentence] if "trials" in stopped.data else []
    return [_gain(judged).sentence, *saved, advice.more_trials(judged)]


def _best(judged: Judged) -> Finding:
    state, best = judged.state, judged.best
    title = "The best configuration"
    if state.spec.several and state.front:
        names = " and ".join(metric.name for metric in state.spec.objectives)
        sentence = f"{count(len(state.front), 'trial')} can't be beaten in {names} at once."
        return Finding("best", "good", title, sentence, {"front": list(state.front)})
    if best is None or best.value is None:
        within = " within the limits" if state.spec.limits else ""
        nearest = nearest_to_limits(state)
        sentence = f"No trial has a value{within}, so there is no best configuration"
        sentence += f"; {nearest}." if nearest else "."
        if not state.trials:
            sentence = "No trial has begun yet, so there is no best configuration."
        return Finding("best", "bad", title, sentence)
    searched = [name for name in state.spec.space.searched if name in best.reported_params]
    values = {name: best.reported_params[name] for name in searched}
    words = ", ".join(
        f"{name} {figure(value) if isinstance(value, float) else as_text(value)}"
        for name, value in [*values.items()][:6]
    )
    more = f" and {len(values) - 6} more" if len(values) > 6 else ""
    config = f" with {words}{more}" if words else ""
    sentence = f"The best is {best.id}{config}: {best.metric.name} {best.value:.5g}."
    data = {"trial": best.id, "params": values, "value": best.value}
    return Finding("best", "good", title, sentence, data)


def _sure(judged: Judged) -> Finding:
    title, noise, best = "How sure that is", judged.noise, judged.best
    if best is None:
        words = "With several metrics it can't be told: noise is measured of one metric only."
        if not judged.state.front:
            words = "Nothing can be said of how sure it is while there is no best trial."
        return Finding("sure", "info", title, words)
    data: dict[str, Any] = {"noise": _noise_data(judged), "runner_up": judged.runner_up}
    expected, chance = judged.expected, judged.better_than(judged.runner_up)
    equal = judged.as_good_as(judged.runner_up) or 0.0
    data |= {"expected": _interval(judged, expected), "better_than_runner_up": chance}
    if noise is None:
        sentence = (
            "How sure that is can't be told: no configuration was trained twice, so the noise of "
            f"{best.metric.name} is not known; `baseline: {{seeds: 5}}` would measure it."
        )
        return Finding("sure", "warning", title, sentence, data)
    if noise.deviation == 0:
        level: Level = "good" if noise.measured else "info"
        return Finding("sure", level, title, _without_noise(judged, best, noise), data)
    if expected is None:
        runs = "Equal runs" if noise.measured else "The last steps of a curve"
        sentence = (
            f"{runs} differ by about {figure(noise.deviation)}, and too few trials came to their "
            "ends to say how lucky the best one was."
        )
        return Finding("sure", "warning", title, sentence, data)
    loss = best.metric.loss
    low, high = sorted((loss(expected.low), loss(expected.high)))
    least, middle, most = figures(low, loss(expected.mean), high)
    sentence = f"Trained again, it should give {middle} "
    sentence += f"({percent(LEVEL)} sure: {least} to {most})"
    if expected.mean - best.loss > LUCKY * noise.deviation:
        sentence += ", for it was probably lucky"
    if chance is not None:
        sentence += f"; it is better than the next, {judged.runner_up}, with probability "
        sentence += share(chance)
        if equal > UNLIKELY:
            sentence += f", and just as good with {share(equal)}"
    if not noise.measured:
        sentence += ". That is a guess from its curves, as nothing was trained twice"
    level = "good" if noise.measured and (chance or 0) > 0.9 else "info"
    return Finding("sure", level, title, f"{sentence}.", data)


def _with_choice_of_models(sure: Finding, judged: Judged, answers: Sequence[Explained]) -> Finding:
    """Return how sure the best is, with the trial that the models prefer, if it is another one.

    After finalists were trained again their means decide, and where there is no noise the values.
    """
    state, best = judged.state, judged.best
    known = judged.noise is not None and judged.noise.deviation == 0
    if best is None or known or state.replicates.champion is not None or state.spec.limits:
        return sure
    answer = next((each for each in answers if each.learnt), None)
    first = judged.first(best.id)
    if answer is None or first not in answer.predicted:
        return sure
    metric, predicted = best.metric, answer.predicted
    choice = min(predicted, key=lambda name: metric.loss(predicted[name]))
    extent = max(predicted.values()) - min(predicted.values())
    if abs(predicted[choice] - predicted[first]) <= SLIGHT * extent:
        return sure
    here, there = figures(predicted[choice], predicted[first])
    words = f"The models of gp would rather choose {choice}: of it they expect {here} on average, "
    words += f"of {first} {there}."
    data = {"trial": choice, "expected": predicted[choice], "of_best": predicted[first]}
    sentence = f"{sure.sentence} {words}"
    return replace(sure, sentence=sentence, data={**sure.data, "preferred": data})


def _without_noise(judged: Judged, best: TrialState, noise: Noise) -> str:
    what = "Equal runs gave equal values" if noise.measured else "The curves show no noise"
    trials = judged.state.trials.values()
    ties = len({judged.first(trial.id) for trial in trials if trial.value == best.value})
    if ties > 1:
        return f"{what}, and {ties:,} trials have the best value: {best.id} was first."
    return f"{what}, so differences between trials are real as far as can be seen."


def _gain(judged: Judged) -> Finding:
    title, best, default = "What it gained", judged.best, judged.default
    if best is None or default is None:
        why = _why_no_default(judged.state)
        if best is None:
            several = judged.state.spec.several and judged.state.front
            why = "there are several metrics" if several else "there is no best trial"
        elif judged.expectations is not None and judged.best_runs is not None:
            over = judged.expectations.lead_over_median(judged.best_runs)
            sentence = "Over the median of the trials that came to their ends it gains about "
            sentence += f"{figure(over.mean)}. It can't be compared with the first trial: {why}."
            return Finding("gain", "info", title, sentence, {"over_median": _lead(over)})
        return Finding("gain", "info", title, f"No gain is given, because {why}.")
    chance, tested = judged.better_than(default.id), judged.gain
    lead = over_median = None
    if judged.expectations is not None and judged.best_runs is not None:
        lead = judged.expectations.lead(judged.best_runs, default.id)
        over_median = judged.expectations.lead_over_median(judged.best_runs)
    data: dict[str, Any] = {
        "default": default.id,
        "seen": judged.runs[default.id][0] - best.loss,
        "over_default": _lead(lead),
        "over_median": _lead(over_median),
        "better_than_default": chance,
        "luck": None if tested is None else tested.luck,
        "more_than_noise": None if tested is None else tested.claimed,
    }
    chosen = judged.state.spec.initial
    name = f"the default ({default.id})" if chosen else f"the first trial ({default.id})"
    if judged.first(best.id) == default.id:
        sentence = f"It gained nothing: {name} is itself the best."
        return Finding("gain", "info", title, sentence, data)
    amount = f"Over {name} it gains {figure(data['seen'])} as seen"
    if lead is not None:
        least, middle, most = figures(lead.low, lead.mean, lead.high)
        amount += f", and about {middle} if both were trained again "
        sure = f"({percent(LEVEL)} sure: {least} to {most})"
        amount += sure if judged.measured else "(a guess from curves)"
    if over_median is not None:
        amount += "; over the median of those that came to their ends it is about "
        amount += figure(over_median.mean)
    level: Level = "info"
    if tested is not None:
        level = "good" if tested.claimed else "warning"
    return Finding("gain", level, title, f"{amount}; {_noise_or_not(judged, chance)}.", data)


def _why_no_default(state: SweepState) -> str:
    """Say why the first trial, which others are compared with, has no result."""
    first = next(iter(state.trials.values()), None)
    if first is None:
        return "no trial has begun yet"
    if first.at_end:
        return "the value of the first trial is too large to compare with"
    if first.state == "FAILED":
        return "the first trial failed"
    if first.diverged:
        return "the first trial diverged"
    if first.state == "STOPPED":
        return f"the first trial was stopped at step {first.step:,}"
    return "the first trial has not come to its end yet"


def _noise_or_not(judged: Judged, chance: float | None) -> str:
    """Say whether a gain over the default is noise.

    Args:
        chance: the probability that the best is really better; None: unknown.
    """
    tested = judged.gain
    if tested is None:
        what = "too little" if judged.measured else "nothing"
        return f"whether that is more than noise can't be told, as {what} was trained twice"
    if tested.luck in (0.0, 1.0):
        return "that is no noise, since equal runs gave equal values"
    answer = "more than noise" if tested.claimed else "perhaps only noise"
    words = f"that is {answer}"
    return words if chance is None else f"{words} (it is better with probability {share(chance)})"


def _cost(judged: Judged) -> Finding:
    state = judged.state
    gpus = state.spec.resources.gpus_per_worker
    price = "" if state.money is None else f", or {state.spec.price.text(state.money)},"
    sentence = (
        f"It cost {cost_of(state.rank_s, gpus)}{price} in {duration(state.worked_s)}, "
        f"for {count(len(state.trials), 'trial')}{_and_replicates(state)}."
    )
    data = {
        "rank_s": state.rank_s,
        "gpu_hours": state.gpu_hours,
        "money": state.money,
        "currency": state.spec.price.currency,
        "elapsed_s": state.worked_s,
        "trials": len(state.trials),
    }
    return Finding("cost", "info", "What it cost", sentence, data)


def _and_replicates(state: SweepState) -> str:
    runs = len(state.replicates.trials)
    return f" and {count(runs, 'second run')} of them" if runs else ""


def _stopped(judged: Judged) -> Finding:
    title, found = "What was stopped", cut_short(judged.state)
    if found is None:
        return Finding("stopped", "info", title, "No trial was stopped early.")
    gpus = judged.state.spec.resources.gpus_per_worker
    saved = found.saved
    about = f"saved about {cost_of(saved.rank_s, gpus)}"
    if saved.low_rank_s is not None and saved.high_rank_s is not None:
        between = cost_range_of(saved.low_rank_s, saved.high_rank_s, gpus)
        about += f" ({percent(CONFIDENCE)} sure: {between})" if between else ""
    sentence = f"{count(saved.stopped, 'trial')} stopped early, which {about}"
    if found.wrong is not None and judged.best is not None:
        sentence += f"; by the curves' model, {_roughly(found.wrong)} would have beaten the best"
        if found.suspect is not None and found.chance > 0.1:
            sentence += f", most likely {found.suspect} ({share(found.chance)})"
    data = {
        "trials": saved.stopped,
        "saved_rank_s": saved.rank_s,
        "low_rank_s": saved.low_rank_s,
        "high_rank_s": saved.high_rank_s,
        "wrongly": found.wrong,
        "suspect": found.suspect,
        "chance": found.chance,
    }
    level: Level = "warning" if found.wrong is not None and found.wrong > 1 else "info"
    return Finding("stopped", level, title, f"{sentence}.", data)


def _wrong(mind: list[Finding]) -> Finding:
    title = "What went wrong"
    data = {"warnings": [finding.title for finding in mind]}
    if not mind:
        return Finding("wrong", "good", title, "Nothing was found wrong.", data)
    first = "; ".join(finding.title[0].lower() + finding.title[1:] for finding in mind[:3])
    more = f"; and {count(len(mind) - 3, 'warning')} more" if len(mind) > 3 else ""
    worst: Level = "bad" if any(finding.level == "bad" for finding in mind) else "warning"
    return Finding("wrong", worst, title, f"Mind this: {first}{more}.", data)


def _reproduce(sweep: str, judged: Judged) -> Finding:
    best = judged.best
    trial = best.id if best is not None else next(iter(judged.state.front), None)
    sentence = f"`hposvc audit {sweep}` has every decision of the sweep."
    commands = [f"hposvc audit {sweep}"]
    if trial is not None:
        commands = [f"hposvc repro {sweep} {trial}", f"hposvc audit {sweep} {trial}"]
        sentence = f"`{commands[0]}` trains {trial} again as it was, and `{commands[1]}` explains"
        sentence += " every decision about it."
    data = {"commands": commands}
    return Finding("reproduce", "info", "How to reproduce it", sentence, data)


def _noise_data(judged: Judged) -> dict[str, Any] | None:
    noise = judged.noise
    if noise is None:
        return None
    low, high = noise.interval
    return {
        "deviation": noise.deviation,
        "low": finite(low),
        "high": finite(high),
        "source": noise.source,
    }


def _interval(judged: Judged, expected: Expected | None) -> dict[str, float] | None:
    """Return an expected loss as a value in the metric's own sign."""
    if expected is None:
        return None
    loss = judged.state.spec.objectives[0].loss
    low, high = sorted((loss(expected.low), loss(expected.high)))
    return {"mean": loss(expected.mean), "low": low, "high": high, "confidence": LEVEL}


def _lead(lead: Expected | None) -> dict[str, float] | None:
    if lead is None:
        return None
    return {"mean": lead.mean, "low": lead.low, "high": lead.high, "confidence": LEVEL}


def _roughly(number: float) -> str:
    return "hardly any of them" if number < 0.5 else f"about {number:.0f} of them"
