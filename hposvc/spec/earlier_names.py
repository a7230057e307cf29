"""Names in frozen specs of earlier versions, translated to today's before a spec is restored.

New specs with these names are refused: see `EARLIER_NAMES` of the sections and plug-ins.
"""

import re
from collections.abc import Mapping
from typing import Any

from trainables.earlier_names import OPTIONS, PREFIX, options_today, parameter_today, params_today

SEARCH = {"gp": {"beliefs": "priors"}}  # today's names of options by method
NAMED = re.compile(rf"\b{re.escape(PREFIX)}(?:{'|'.join(OPTIONS)})\b")


def spec_today(data: Mapping[str, object]) -> dict[str, object]:
    """Return the data of a frozen spec with today's names of keys and searched options."""
    today = {**data}
    if isinstance(training := data.get("training"), Mapping):
        today["training"] = options_today(training)
    if isinstance(search := data.get("search"), Mapping):
        names = SEARCH.get(search.get("method", ""), {})
        today["search"] = {names.get(name, name): value for name, value in search.items()}
    if isinstance(parameters := data.get("parameters"), Mapping):
        declared = {name: _declared_today(domain) for name, domain in parameters.items()}
        today["parameters"] = params_today(declared)
    if isinstance(initial := data.get("initial"), list):
        today["initial"] = [
            params_today(point) if isinstance(point, Mapping) else point for point in initial
        ]
    if isinstance(constraints := data.get("constraints"), list):
        today["constraints"] = [NAMED.sub(_name_today, text) for text in constraints]
    return today


def _declared_today(domain: Any) -> Any:
    """Return a declared domain whose conditions have today's names."""
    if not isinstance(domain, Mapping) or not isinstance(domain.get("when"), Mapping):
        return domain
    return {**domain, "when": params_today(domain["when"])}


def _name_today(match: re.Match[str]) -> str:
    return parameter_today(match[0])
