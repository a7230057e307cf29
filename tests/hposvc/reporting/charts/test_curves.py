import xml.etree.ElementTree as ET

from hposvc.reporting.charts import curves


def test_each_rung_has_its_trials_and_its_cut(history_of):
    history = history_of("asha")
    data, trials = curves.build(history).data, history.state.trials.values()
    assert data["rungs"] == [1, 3, 9]
    for cut in data["cuts"]:
        here = {
            trial.id: trial.steps[cut["step"]] for trial in trials if cut["step"] in trial.steps
        }
        on = [trial.id for trial in trials if trial.step > cut["step"]]
        assert (cut["arrived"], cut["continued"]) == (len(here), len(on))
        better = [name for name, value in here.items() if value > cut["cut"] * (1 + 1e-4)]
        assert len(better) < cut["continued"]  # the cut is the value of the last that would go on
        assert set(cut["unlucky"]) <= {trial.id for trial in trials if trial.reason == "rung"}


def test_the_scheduler_words_are_in_the_picture(history_of):
    history = history_of("asha")
    svg = curves.draw(curves.build(history).data)
    words = [element.text for element in ET.fromstring(svg).findall(".//{*}title")]
    stopped = next(trial for trial in history.state.trials.values() if trial.reason == "rung")
    detail = history.decisions[stopped.id][-1].detail
    assert "rank" in detail
    assert any(text.startswith(stopped.id) and detail in text for text in words)


def test_many_trials_are_drawn_as_bands_and_the_best(history_of):
    data = curves.build(history_of("many")).data
    bands = data["bands"]
    assert bands["count"][0] == max(bands["count"]) == data["of"] == 220
    assert all(
        low <= mid <= high
        for low, mid, high in zip(bands["q10"], bands["q50"], bands["q90"], strict=True)
    )
    svg = curves.draw(data)
    assert "220 trials" in svg
    assert len(svg) < 40_000
