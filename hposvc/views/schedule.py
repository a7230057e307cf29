"""A schedule as a spec that people keep: YAML, with a word on where it comes from."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from hposvc.lineage import Stretch, straight
from hposvc.state import SweepState
from hposvc.views.words import measured


def text(sweep: str, state: SweepState, line: Sequence[Stretch], spec: Mapping[str, Any]) -> str:
    """The spec that replays a line, under comments that tell the line."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    written = StringIO()
    yaml.dump(dict(spec), written)
    head = "".join(f"# {words}\n" for words in _story(sweep, state, line))
    return head + written.getvalue()


def _story(sweep: str, state: SweepState, line: Sequence[Stretch]) -> Iterator[str]:
    unit = state.spec.fidelity.unit if state.spec.fidelity else ""
    best = state.trials[line[-1].trial]
    yield f"The schedule of {best.id}, the best trial of {sweep}: {measured(best)}."
    yield "Train it again:  hposvc run FILE"
    done = 0
    for stretch in line:
        steps = f"{unit} {done + 1} to {done + stretch.steps}".strip()
        yield f"  {steps}: {stretch.trial}'s {stretch.first} to {stretch.last}"
        done += stretch.steps
    if not straight([*line]):
        yield "Trials copied others that stood at another step: what follows the whole length of a"
        yield "trial, such as a learning rate's schedule, is not the same here."
