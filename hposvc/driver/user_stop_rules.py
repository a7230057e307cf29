"""A user's own rules that end a sweep: functions of the trials so far.

A rule is asked at the beginning of a driver, and in each turn of its loop in which a trial ended or
came to a rung. What it decides is an event, so no replay asks it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hposvc.controller import stopping
from hposvc.errors import fail, plug_in_raised, wrong_plug_in_answer
from hposvc.events import Event
from hposvc.spec import registry
from hposvc.state.sweep import SweepState
from searchers import Observation

Rule = Callable[[Sequence[Observation]], object]
WANTED = "return True or a text, the reason, to end the sweep, and False, None or '' to go on"


@dataclass
class StopRules:
    """The rules of one sweep."""

    rules: dict[str, Rule]  # by their references
    _known_results: int = field(default=-1, init=False)  # when the rules were last asked

    @classmethod
    def of(cls, references: Sequence[str]) -> "StopRules":
        """Return the rules of a spec.

        Raises:
            SpecError: a rule cannot be imported.
        """
        rules: dict[str, Rule] = {}
        for number, name in enumerate(references):
            try:
                rules[name] = registry.resolve_function(name)
            except ValueError as error:
                raise fail(error, "stop", "rules", number) from error
        return cls(rules)

    def is_due(self, state: SweepState) -> bool:
        """Return whether there are rules, and results that they have not seen."""
        ends = state.halted or state.finished or state.resting or state.replicates.begun
        asked = self.rules and state.spec.stop.rules
        return bool(asked) and not ends and state.results not in (self._known_results, 0)

    def ask(self, state: SweepState, time: float) -> list[Event]:
        """Return the end of the sweep if a rule wants it.

        Raises:
            PlugInFailed: a rule raised, or gave an answer that is none.
        """
        self._known_results = state.results
        for name in state.spec.stop.rules:
            if reason := _ask(name, self.rules[name], [*state.history()]):
                return stopping.halt(state, time, "rule", detail=reason)
        return []


def _ask(name: str, rule: Rule, history: Sequence[Observation]) -> str:
    """Return why a rule ends the sweep; empty: it goes on."""
    key = f"stop.rules {name}"
    try:
        answer = rule(history)
    except (Exception, SystemExit) as error:
        raise plug_in_raised(key, rule, error) from error
    if answer is None or (isinstance(answer, bool | np.bool_) and not answer):
        return ""
    if isinstance(answer, bool | np.bool_):
        return f"the rule {name} ended it"
    if not isinstance(answer, str):
        raise wrong_plug_in_answer(key, rule, f"returns {answer!r}; {WANTED}")
    return f"{' '.join(answer.split())} ({name})" if answer.strip() else ""
