from hposvc.analysis.lineage import winner_lineage
from hposvc.reporting.charts import lineage


def test_copies_are_those_of_the_orders(history_of):
    history = history_of("pbt")
    data = lineage.build(history).data
    copies = {
        (row["trial"], segment["parent"], segment["parent_step"])
        for row in data["trials"]
        for segment in row["segments"]
        if segment["parent"]
    }
    state = history.state
    assert copies
    assert copies == {
        (trial.id, segment.parent, segment.start.step)
        for trial in state.trials.values()
        for segment in trial.segments
        if segment.parent
    }
    winner = [(one["trial"], one["first"], one["last"]) for one in data["winner"]]
    assert winner == [(one.trial, one.first, one.last) for one in winner_lineage(state)]


def test_segments_of_a_trial_follow_each_other(history_of):
    for row in lineage.build(history_of("pbt")).data["trials"]:
        ends = [segment["last"] for segment in row["segments"]]
        assert [segment["after"] for segment in row["segments"][1:]] == ends[:-1]


def test_only_numbers_that_changed_have_a_schedule(history_of):
    names = lineage.build(history_of("pbt")).data["parameters"]
    assert "lr" in names
    assert "optimizer" not in names


def test_a_sweep_without_copies_has_no_lineage(history_of):
    assert lineage.build(history_of("asha")) is None
