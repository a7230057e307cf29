import pytest

from hposvc.reporting.charts import timeline


@pytest.mark.parametrize("name", ["asha", "promote", "pbt", "running", "several"])
def test_work_and_idle_time_are_all_the_time(history_of, name):
    data = timeline.build(history_of(name)).data
    idle = sum(row["share"] for row in data["idle"])
    assert data["utilisation"] + idle == pytest.approx(1, abs=0.005)  # tiny reasons are left out
    busy = sum(data["busy"]["share"]) / len(data["busy"]["share"])
    assert busy == pytest.approx(data["utilisation"], abs=1e-4)


def test_time_without_a_driver_is_told_apart(history_of):
    data = timeline.build(history_of("running")).data
    assert data["undriven"] == [[3.0, 59.0]]
    assert data["idle"][0]["why"] in ("driver", "unused")
    driver = next(row for row in data["idle"] if row["why"] == "driver")
    assert driver["slot_seconds"] == pytest.approx(56 * data["lanes"])
    assert data["bars"]["how"] == ["lost", "running"]
