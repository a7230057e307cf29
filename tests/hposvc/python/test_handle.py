"""Handles of recorded sweeps in Python: opening, reading and continuing them."""

import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import hposvc
from hposvc import NotFound, SpecError, Sweep, api
from hposvc.api import Sweeps
from hposvc.events import Attached, from_json
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.python.handle import Handle
from hposvc.verbs import place
from hposvc.verbs.place import FOLLOW_S
from hposvc.verbs.reading import ls

CURVE = """
import time

def valley(params, step):
    return {"loss": (params["x"] - 3) ** 2 + 1 / step, "speed": 10.0 * step}, 1.0
"""
SECTIONS = {
    "name": "valley",
    "engine": {"type": "simulate", "curve": "curves_of_handles:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "search": "random",
    "trials": {"max": 4},
    "tracking": {"send_to": []},  # MLflow would take seconds
}


@pytest.fixture(autouse=True)
def curves(tmp_path, monkeypatch):
    (tmp_path / "curves_of_handles.py").write_text(CURVE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def ran(curves, home) -> Handle:
    """Return an ended sweep, shared by all tests, each of which only reads it."""
    if not (home / "hposvc.db").exists():
        Sweep(**SECTIONS).run(home, progress=False)
    return hposvc.load("valley", home)


def test_a_sweep_that_has_ended_is_opened_by_its_id_or_a_part_of_it_or_last(ran, home):
    for name in (ran.id, ran.id[:-2], "last"):
        handle = hposvc.load(name, home)
        assert handle.id == ran.id
        assert handle.result().state == "COMPLETED"
        assert handle.best().value == handle.trials().value.min()
    with pytest.raises(NotFound, match="valle-1: no such sweep"):
        hposvc.load("valle-1", home)


def test_trials_have_durations_and_all_metrics(ran):
    frame = ran.trials()
    assert (frame.duration_s == 3.0).all()
    assert (frame["metrics.speed"] == 30.0).all()
    assert "metrics.loss" not in frame


def test_curves_have_every_report_once_with_all_metrics(ran):
    frame = ran.curves()
    assert list(frame.columns[:3]) == ["trial", "step", "time"]
    assert len(frame) == 4 * 3
    assert frame.groupby("trial").step.apply(list).tolist() == [[1, 2, 3]] * 4
    assert (frame.speed == 10.0 * frame.step).all()
    last = frame[frame.step == 3].set_index("trial").loss
    assert last.to_dict() == pytest.approx(ran.trials().set_index("trial").value.to_dict())


def test_a_sweep_that_has_ended_is_extended_and_goes_on_here(tmp_path):
    ran = hposvc.load(Sweep(**SECTIONS).run(tmp_path, progress=False).sweep, tmp_path)
    result = ran.extend(trials=2, progress=False)
    assert (result.state, len(result.trials)) == ("COMPLETED", 6)
    assert ran.wait(progress=False).state == "COMPLETED"
    with pytest.raises(SpecError, match="seed"):
        ran.extend(set={"seed": 3}, progress=False)
    assert len(ran.trials()) == 6


def test_a_configuration_is_proposed_and_its_trial_follows(tmp_path):
    Sweep(**SECTIONS).run(tmp_path, progress=False)
    handle = hposvc.load("last", tmp_path)
    asked = handle.propose({"x": 1.5})
    assert (asked["queued"], asked["params"]) == (False, {"x": 1.5})
    assert asked["predicted"]["loss"]["deviation"] > 0
    assert handle.propose({"x": 1.5}, run=True)["queued"]
    again = handle.propose({"x": 1.5}, run=True)
    assert (again["queued"], again["refused"]) == (False, "it is in the queue already")
    handle.extend(trials=1, progress=False)
    assert handle.trials()["x"].tolist()[-1] == 1.5
    assert handle.status().proposals.proposed == 1
    assert handle.propose({"x": 1.5})["refused"] == "it was tried as t0005"
    with pytest.raises(SpecError, match="xx: is no parameter: did you mean 'x'"):
        handle.propose({"xx": 1.0})


def test_run_says_id_progress_and_result_on_stderr_unless_told_not_to(tmp_path, capsys):
    result = Sweep(**SECTIONS).run(tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{result.sweep}: look at it from elsewhere by hposvc.load(")
    assert "COMPLETED at 3/3 step" in err
    assert f"{result.best.trial}" in err.partition("4 completed")[2]
    Sweep(**SECTIONS).run(tmp_path, progress=False)
    assert capsys.readouterr() == ("", "")


def test_what_a_notebook_or_a_print_shows_is_short(ran):
    result, best = ran.result(), ran.best()
    summary = f"4 trials, best loss={best.value:.5g} ({best.trial}, step 3)"
    assert repr(result) == f"Result({ran.id}: COMPLETED, {summary})"
    assert repr(ran) == f"Handle({ran.id!r})"
    assert len(repr(best)) < 200
    assert "valley" in repr(Sweep(**SECTIONS))
    assert len(repr(Sweep(**SECTIONS))) < 300
    html = ran._repr_html_()
    assert html == result._repr_html_()
    assert html.count("<tr") == 1 + 4
    assert html.index(best.trial) < min(
        html.index(f"<td>{name}</td>") for name in ran.trials().trial if name != best.trial
    )


def test_errors_of_a_spec_come_without_our_frames(tmp_path):
    """The traceback keeps only the frame of the method that the user called."""
    wrong = {**SECTIONS, "parameters": {"x": {"min": 6.0, "max": 0.0}}}
    with pytest.raises(SpecError, match="min is 6") as caught:
        Sweep(**wrong).run(tmp_path, progress=False)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames][1:] == ["call"]
    assert caught.value.__cause__ is None


def test_what_cannot_be_pickled_is_named(tmp_path):
    guard, scale = threading.Lock(), 2.0

    def train(params, worker):
        with guard:
            worker.report(1, {"loss": scale})

    sections = {name: SECTIONS[name] for name in ("metric", "parameters", "trials")}
    with pytest.raises(SpecError) as caught:
        Sweep(train, **sections).run(tmp_path, progress=False)
    assert "train uses guard (lock), which can't be pickled" in str(caught.value)
    assert "scale" not in str(caught.value)


def test_editors_complete_the_sections_and_the_package(tmp_path):
    import inspect
    from dataclasses import fields

    from hposvc.spec import SweepSpec

    named = set(inspect.signature(Sweep.__init__).parameters) - {"self", "unknown"}
    assert named == {field.name for field in fields(SweepSpec)} - {"chosen"}  # users write no such
    assert {"Sweep", "load", "report", "__version__"} <= set(dir(hposvc))
    assert not {"runner", "journal", "import_module"} & set(dir(hposvc))


def test_wait_has_patience_with_a_driver_that_starts(tmp_path):
    """The driver has the sweep, but Ray has not started yet."""
    sweeps = Sweeps.open(tmp_path)
    row = api.create(sweeps, api.validate(SECTIONS, {}))
    lease = Lease(sweeps.journal.store, row.id)
    lease.acquire()
    pool = ThreadPoolExecutor(1)
    waiting = pool.submit(hposvc.load(row.id, tmp_path).wait, progress=False)
    try:
        with pytest.raises(TimeoutError):
            waiting.result(3 * FOLLOW_S)
    finally:
        lease.release()
        pool.shutdown()
    with pytest.raises(hposvc.OutOfReach, match="is QUEUED: no driver is at work"):
        waiting.result()


@pytest.fixture
def grows(ran, tmp_path, monkeypatch):
    """Make a sweep whose journal grows, as by a driver, each time that a reader sleeps."""
    events = [event for _, event in ran.sweeps.journal.read(ran.id)]
    sweeps = Sweeps.open(tmp_path)
    row = api.create(sweeps, api.validate(SECTIONS, {}), "grows")
    lease, kinds_read = Lease(sweeps.journal.store, row.id), []
    lease.acquire()

    def grow(seconds):
        seq = sweeps.journal.last(row.id)
        sweeps.journal.append(row.id, seq, events[seq : seq + 5])
        if seq + 5 >= len(events):
            lease.release()

    def read(kind, at, body):
        kinds_read.append(kind)
        return from_json(kind, at, body)

    grow(0)
    monkeypatch.setattr("hposvc.journal.journal.from_json", read)
    clock = SimpleNamespace(**{**vars(time), "sleep": grow})
    for module in (api, place):
        monkeypatch.setattr(module, "time", clock)
    return hposvc.load("grows", tmp_path), events, kinds_read


def test_wait_reads_each_event_of_the_journal_once(grows):
    handle, events, kinds_read = grows
    kinds_read.clear()
    assert handle.wait(progress=False).state == "COMPLETED"
    looks = len(events) / 5
    assert len(events) <= len(kinds_read) <= len(events) + 2 * looks, "the last one at each look"
    assert len(events) > 15, "it looks several times"


def test_a_driver_that_ends_while_somebody_looks_was_not_interrupted(tmp_path):
    """The driver writes the sweep's end, and then releases its lease."""

    class Ends(Journal):
        def read(self, sweep, after=0):
            yield from super().read(sweep, after)
            lease.release()

    sweeps = Sweeps.open(tmp_path)
    row = api.create(sweeps, api.validate(SECTIONS, {}))
    sweeps.journal.append(row.id, 0, [Attached(0.0, "host:1")])
    lease = Lease(sweeps.journal.store, row.id)
    lease.acquire()
    reader = Sweeps(sweeps.home, Ends(sweeps.journal.store))
    assert api.load(reader, row.id).phase == "RUNNING"
    lease.acquire()
    assert [listed.state for listed in ls(reader)] == ["RUNNING"]
    assert api.load(sweeps, row.id).phase == "INTERRUPTED"
