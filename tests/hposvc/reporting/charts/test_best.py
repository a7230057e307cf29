import pytest
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.reporting.charts import best
from hposvc.reporting.history import History


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    sweeps = api.Sweeps.open(tmp_path_factory.mktemp("home"))
    spec = make_spec(trials={"max": 210, "parallel": 8}, scheduler={"type": "asha"})
    api.drive(sweeps, api.create(sweeps, spec, "s"))
    return History.of(spec, [event for _, event in sweeps.journal.read("s")])


def test_its_columns_have_one_entry_for_each_new_best_value(history):
    chart = best.build(history)
    columns = [chart.data[name] for name in ("trial", "value", "trials", "seconds", "cost")]
    assert {len(column) for column in columns} == {len(history.improvements)}
    assert chart.data["trial"][-1] == history.state.best
    assert history.state.best in chart.message
