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
