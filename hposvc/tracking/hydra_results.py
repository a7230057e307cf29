"""The results of a sweep of Hydra's sweeper, in the file that Hydra's users look for.

Whichever process ends the sweep, its recorder writes the file: the sweeper's own, `hposvc resume`
or `hposvc extend`. All that it needs is in the journal. The command of the sweep has the folder of
the multirun and the keys of the parameters, and a choice is recorded as the text that Hydra reads.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from hposvc.spec import SweepSpec
from hposvc.spec.sinks import HYDRA_FOLDER
from hposvc.state import summary
from hposvc.state.sweep import SweepState
from hposvc.tracking.projection import Projection
from hposvc.tracking.sink import Sink, SinkSetting
from searchers import Value

RESULTS = "optimization_results.yaml"
MULTIRUN = "multirun.yaml"  # that Hydra's sweepers write first
PARAMETER = re.compile(r"(.+)=\$\{(.+)\}")  # the item of a command for a parameter: KEY=${NAME}

log = logging.getLogger("hposvc")


@dataclass(frozen=True)
class Multirun:
    """Words of the command of a sweep of Hydra's sweeper."""

    folder: Path
    keys: Mapping[str, str]  # Hydra's keys, such as `+lr` or `db/engine`, by the sweep's names

    @classmethod
    def of(cls, spec: SweepSpec) -> "Multirun":
        """Return the multirun of a sweep; cross_checks.py has refused sweeps that are none."""
        items = spec.command or ()
        (folder,) = (item for item in items if item.startswith(HYDRA_FOLDER))
        matches = [PARAMETER.fullmatch(item) for item in items]
        keys = {match[2]: match[1] for match in matches if match and match[2] in spec.space}
        place = Path(str(_read(folder.replace("$${", "${"))))
        return cls(Path(spec.works_in or "") / place, keys)

    def params(self, recorded: Mapping[str, Value]) -> dict[str, Any]:
        """Return the parameters of a trial by Hydra's keys, with values as the application has."""
        params: dict[str, Any] = {}
        for name, value in recorded.items():
            key = self.keys[name]
            params[key] = _read(f"{key}={value}") if isinstance(value, str) else value
        return params


class HydraResults(Sink):
    """The best trials of an ended sweep in the file optimization_results.yaml of its multirun.

    The file holds no events, so only `finish` writes it.
    """

    name: ClassVar[str] = "hydra"
    gathers: ClassVar[bool] = True

    def __init__(self, setting: SinkSetting) -> None:
        self._sweep, self._multirun = setting.sweep.id, Multirun.of(setting.spec)

    def finish(self, projection: Projection) -> None:
        """Write the result of a sweep that has ended and has a value."""
        state, folder = projection.state, self._multirun.folder
        if not state.finished or not state.front:
            return
        if not (folder / MULTIRUN).is_file():
            log.warning("%s: %s is no multirun any more: no results there", self._sweep, folder)
            return
        draft = folder / f".{RESULTS}.draft"
        draft.write_text(OmegaConf.to_yaml(OmegaConf.create(self._results(state))))
        draft.replace(folder / RESULTS)

    def _results(self, state: SweepState) -> dict[str, Any]:
        """Return the best trials, with the keys that Hydra's Optuna sweeper gives them."""
        best, metrics = summary.front(self._sweep, state, {}), state.spec.objectives
        results: dict[str, Any] = {"name": "hposvc", "sweep": self._sweep}
        if state.spec.several:
            results["solutions"] = [
                {
                    "params": self._multirun.params(trial.params),
                    "values": [trial.metrics[metric.name] for metric in metrics],
                }
                for trial in best
            ]
        else:
            results["best_evaluated_params"] = self._multirun.params(best[0].params)
            results["best_evaluated_result"] = best[0].value
        return results


def _read(override: str) -> Any:
    """Return the value of an override, as Hydra reads it."""
    return OverridesParser.create().parse_override(override).value()
