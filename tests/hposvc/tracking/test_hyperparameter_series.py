"""Values that change within a run: points and tags, beside params that never change."""

from collections.abc import Sequence

import pytest
from simulated_sweeps import Lab, fold, make_spec

from hposvc import spec as specs
from hposvc.events import Event
from hposvc.journal.journal import SweepRow
from hposvc.tracking.projection import Projection, RunContent

PBT = {"type": "pbt", "interval": 2, "quantile": 0.4, "mutate": {"lr": 2, "wide": {}}}
PARAMETERS = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}, "wide": {"values": [True, None]}}


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> tuple[SweepRow, list[Event]]:
    """Return the events of a population in which some trials copied others, some twice."""
    folder = tmp_path_factory.mktemp("sweep")
    spec = make_spec(scheduler=PBT, trials={"max": 8, "parallel": 3}, parameters=PARAMETERS)
    lab = Lab.at(folder)
    lab.run(spec)
    return SweepRow("s-1", "s", "p", 1000.0, specs.dump(spec), {}), lab.events()


def entries_of(row: SweepRow, events: Sequence[Event], cuts: set[int]) -> dict[str, RunContent]:
    """Return everything sent to each run, taken from the projection in portions."""
    projection, entries = Projection(row, specs.load(row.spec)), {}
    for index, event in enumerate(events):
        projection.apply(event)
        if index in cuts or index == len(events) - 1:
            for name, entry in projection.take_entries().items():
                before = entries.get(name, RunContent())
                points = [*before.points, *entry.points]
                params, tags = {**before.params, **entry.params}, {**before.tags, **entry.tags}
                entries[name] = RunContent(params, tags, points)
    return entries


def test_each_life_begins_with_a_point_at_its_first_step(copied):
    row, events = copied
    state, entries = fold(specs.load(row.spec), events), entries_of(row, events, set())
    lives = {trial.id: trial.segments for trial in state.trials.values()}
    assert {len(segments) for segments in lives.values()} >= {1, 2}
    for name, segments in lives.items():
        points = [
            (point.step, point.value) for point in entries[name].points if "hp/" in point.name
        ]
        expected = [(life.after + 1, life.params["lr"]) for life in segments]
        assert points == (expected if len(segments) > 1 else [])


def test_params_are_those_of_the_beginning_and_tags_those_of_the_end(copied):
    row, events = copied
    state, entries = fold(specs.load(row.spec), events), entries_of(row, events, set())
    for trial in state.trials.values():
        entry, first = entries[trial.id], trial.segments[0].params
        assert entry.params == first
        tags = {name: text for name, text in entry.tags.items() if name.startswith("hp/")}
        now = {f"hp/{name}": str(value) for name, value in trial.params.items()}
        assert tags == (now if len(trial.segments) > 1 else {})
        assert entry.tags.get("hposvc.parent_trial") == trial.parent


def test_values_of_a_fixed_schedule_are_points_though_they_are_constants(tmp_path):
    spec = make_spec(
        scheduler={"type": "replay", "schedule": [{"after": 4, "values": {"lr": 0.02}}]},
        trials={"max": 1},
        parameters={"lr": 0.01, "depth": 3},
    )
    lab = Lab.at(tmp_path)
    lab.run(spec)
    row = SweepRow("s-1", "s", "p", 1000.0, specs.dump(spec), {})
    entry = entries_of(row, lab.events(), set())["t0001"]
    points = [point[:2] + point[3:] for point in entry.points if "hp/" in point.name]
    assert points == [("hp/lr", 0.01, 1), ("hp/lr", 0.02, 5)]
    assert (entry.params["lr"], entry.tags["hp/lr"]) == (0.01, "0.02")
    assert "hp/depth" not in entry.tags
