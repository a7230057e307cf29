"""Extension of a sweep: which of its limits can be changed while it runs, or after its end."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

from hposvc import spec as specs
from hposvc.errors import Problem, SpecError, fail, shown
from hposvc.spec import SweepSpec
from hposvc.spec.registry import SCHEDULERS, trait
from hposvc.spec.stopping import SEEDS, Finalists
from hposvc.spec.types import EXTENDABLE
from searchers import annotations_of, nearest
from trainables.storage.checkpoint import TRIAL

# Dotted keys. The rest of a spec is what makes results comparable: `fork` changes that.
LIMITS = tuple(
    f"{section}.{key}"
    for section, hint in get_type_hints(SweepSpec).items()
    for cls in (hint, *get_args(hint))
    if is_dataclass(cls) and get_origin(hint) is not tuple
    for key, annotation in annotations_of(cls).items()
    if EXTENDABLE in get_args(annotation)
)
INCREMENT = re.compile(r"\+[0-9]+")  # a value of trials.max: add so many
AGAIN = "seeds."  # begins the key of a trial that is to be trained with so many other seeds


def trials_increment(count: int) -> str:
    """Return the change that adds `count` to `trials.max`, whatever it is when applied."""
    return f"+{count}"


def trained_again(changes: Mapping[str, Any]) -> dict[str, int]:
    """Return with how many other seeds trials are to be trained, by trial."""
    return {key.removeprefix(AGAIN): n for key, n in changes.items() if key.startswith(AGAIN)}


def accepted(spec: SweepSpec, changes: Mapping[str, object], trials: int = 0) -> dict[str, object]:
    """Return the changes of limits as they are to be journaled, once they have been checked.

    Args:
        changes: by dotted key; null removes a limit.
        trials: the number of trials so far; an increment adds to it if there is no `trials.max`.

    Raises:
        SpecError: a key is not a limit, a value does not fit, or the changes add a problem to the
            spec's own.
    """
    advice = "`hposvc fork` changes the rest of a spec"
    problems = [
        Problem((key,), "no such limit", f"{nearest(key, LIMITS)}; {advice}", at_key=True)
        for key in changes
        if key not in LIMITS and not key.startswith(AGAIN)
    ]
    for name, seeds in trained_again(changes).items():
        problems += _again_problems(spec, name, seeds, trials)
    if not problems and "fidelity.max" in changes:
        problems = _length_problems(spec, changes["fidelity.max"])
    if not problems and "stop.rules" in changes:
        problems = _rule_problems(spec, changes["stop.rules"])
    if problems:
        raise SpecError(problems)
    counted = {key: _counted(key, value, spec, trials) for key, value in changes.items()}
    recorded = spec.problems()  # an earlier version, whose rules were others, recorded the spec
    after = changed(spec, counted).problems()
    if added := [problem for problem in after if problem not in recorded]:
        raise SpecError(dict.fromkeys(added))
    return counted


def changed(spec: SweepSpec, changes: Mapping[str, object]) -> SweepSpec:
    """Return the spec with changes that were accepted, by whatever rules held at that time."""
    limits = {key: value for key, value in changes.items() if not key.startswith(AGAIN)}
    return specs.thaw(_with_changes(specs.dump(spec), limits)) if limits else spec


def _counted(key: str, value: object, spec: SweepSpec, trials: int) -> object:
    if key == "trials.max" and isinstance(value, str) and INCREMENT.fullmatch(value):
        return (trials if spec.trials.max is None else spec.trials.max) + int(value)
    return [] if key == "stop.rules" and value is None else value


def _with_changes(data: dict[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    for key, value in changes.items():
        section, _, name = key.partition(".")
        before = data.get(section)
        data[section] = {**(before if isinstance(before, dict) else {}), name: value}
    return data


def _again_problems(spec: SweepSpec, name: str, seeds: object, trials: int) -> Iterator[Problem]:
    """Check that a trial can be trained again, as finalists are."""
    if not TRIAL.fullmatch(name) or int(name[1:]) not in range(1, trials + 1):
        yield Problem((AGAIN + name,), f"there is no such trial, of {trials}", at_key=True)
    elif type(seeds) is not int or not 1 <= seeds <= SEEDS.most:
        fix = f"give a number of trainings, 1 to {SEEDS.most:g}"
        yield Problem((AGAIN + name,), f"is {shown(seeds)}", fix)
    elif finalists := replace(spec, finalists=spec.finalists or Finalists(1, 1)).problems():
        yield from (problem for problem in finalists if problem not in spec.problems())


def _rule_problems(spec: SweepSpec, rules: object) -> list[Problem]:
    """Check that no rule is new: its code was neither checked nor sent with the sweep."""
    kept = rules if isinstance(rules, list | tuple) else [] if rules is None else [rules]
    new = [rule for rule in kept if rule not in spec.stop.rules]
    message = f"is no rule of this sweep; give some of [{', '.join(spec.stop.rules)}], or []"
    return [Problem(("stop", "rules"), f"{shown(rule)} {message}") for rule in new]


def _length_problems(spec: SweepSpec, last: object) -> list[Problem]:
    """Check that trials become longer, and only under a scheduler that allows it."""
    path = ("fidelity", "max")
    if spec.fidelity is None or spec.last_step is None:
        message = "can't be given to a sweep that began without fidelity: its trials run until"
        remedy = "their trainable returns; `hposvc fork` begins a sweep with other settings"
        return [Problem(path, f"{message} {remedy}")]
    if isinstance(last, int) and last < spec.last_step:
        return [Problem(path, f"is {last}, and trials are {spec.last_step} long", "give no less")]
    if last != spec.last_step and trait(SCHEDULERS, spec.scheduler, "fixed_length"):
        message = f"can't grow under scheduler {spec.scheduler.name}"
        return [Problem(path, message, "`hposvc fork` begins anew with what was learned")]
    if last != spec.last_step and spec.trials.seeds is not None:
        message = "can't grow with trials.seeds: means are of seeds of one length"
        return [Problem(path, message, "`hposvc fork` begins anew with what was learned")]
    return []


def more_trials(changes: Mapping[str, object], trials: int | None) -> dict[str, object]:
    """Return the changes, with `trials` more than the sweep has or was to have; None: no more."""
    if trials is None:
        return dict(changes)
    if trials < 1:
        raise fail(f"is {trials}", "--trials", fix="give 1 or more")
    if "trials.max" in changes:
        raise fail("is given, and so is --set trials.max", "--trials", fix="leave one of them out")
    return {**changes, "trials.max": trials_increment(trials)}
