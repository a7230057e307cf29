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


def test_a_slot_waits_to_retry_after_a_failure(history_of):
    history = history_of("asha")
    assert any(span.again for span in history.spans.values())
    reasons = [row["why"] for row in timeline.build(history).data["idle"]]
    assert "tail" in reasons


def test_many_orders_are_drawn_as_shares_of_work(history_of, monkeypatch):
    monkeypatch.setattr(timeline, "MOST_BARS", 20)
    data = timeline.build(history_of("asha")).data
    assert data["bars"]["order"] == []
    rows = data["density"]
    assert len(rows) == data["lanes"]
    mean = sum(map(sum, rows)) / len(rows) / len(rows[0])
    assert mean == pytest.approx(data["utilisation"], abs=1e-4)
    assert len(timeline.draw(data)) < 60_000
