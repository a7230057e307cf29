"""A trial's schedule as a YAML spec, with comments on where it comes from."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from hposvc.analysis.lineage import LineageSegment, replays_exactly
from hposvc.state.sweep import SweepState
from hposvc.views.formatting import trial_values


def text(
    sweep: str, state: SweepState, line: Sequence[LineageSegment], spec: Mapping[str, Any]
) -> str:
    """Return the YAML of the spec that replays a lineage, headed by comments that describe it."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    body = StringIO()
    yaml.dump(dict(spec), body)
    head = "".join(f"# {comment}\n" for comment in _describe_lineage(sweep, state, line))
    return head + body.getvalue()


def _describe_lineage(
    sweep: str, state: SweepState, line: Sequence[LineageSegment]
) -> Iterator[str]:
    unit = state.spec.fidelity.unit if state.spec.fidelity else ""
    best = state.trials[line[-1].trial]
    yield f"The schedule of {best.id}, the best trial of {sweep}: {trial_values(best)}."
    yield "Train it again:  hposvc run FILE"
    steps_done = 0
    for segment in line:
        steps = f"{unit} {steps_done + 1} to {steps_done + segment.steps}".strip()
        yield f"  {steps}: {segment.trial}'s {segment.first} to {segment.last}"
        steps_done += segment.steps
    if not replays_exactly([*line]):
        yield "Trials copied others that stood at another step: what follows the whole length of a"
        yield "trial, such as a learning rate's schedule, is not the same here."
