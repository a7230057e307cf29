import re

import pytest

from hposvc import api
from hposvc import spec as specs
from hposvc.journal.lease import Lease

BEST = {"sweep", "trial", "params", "value", "metrics", "step", "checkpoint", "mlflow_run_id"}
BEST |= {"baseline", "device"}
TRIAL = {"trial", "state", "reason", "params", "value", "metrics", "step", "attempts"}
TRIAL |= {"baseline", "device", "node"}
STATUS = {"sweep", "state", "trials", "best", "elapsed_s", "gpu_hours", "driver"}
LISTED = {
    "sweep",
    "name",
    "project",
    "state",
    "created",
    "trials",
    "best_value",
    "front",
    "why",
} | {"elapsed_s", "gpu_hours"}


def curve(name):
    return {"engine": {"type": "simulate", "curve": f"curves:{name}"}}


def test_run_prints_the_status_and_others_print_what_the_contract_says(hposvc, spec):
    ran = hposvc("run", spec(), "--id", "valley-1", "-o", "json")
    assert ran.code == 0
    assert "valley-1" in ran.err
    assert ran.data.keys() >= STATUS
    none = dict.fromkeys(("running", "interrupted", "paused", "stopped", "failed"), 0)
    assert ran.data["trials"] == {**none, "total": 6, "completed": 6}
    assert (ran.data["state"], ran.data["driver"]) == ("COMPLETED", "none")
    best = hposvc("best", "valley-1", "-o", "json").data
    assert best.keys() == BEST | {"trained_to_end"}
    assert best["params"] == {"x": 3, "width": 64}
    assert best["value"] == best["metrics"]["loss"] == pytest.approx(1 / 3)
    assert best["step"] == 3
    assert ran.data["best"] == best
    assert hposvc("status", "last", "-o", "json").data == ran.data
    trials = hposvc("trials", "valley", "-o", "json").data
    assert len(trials) == 6
    more = {
        "shrink",
        "gpu_hours",
        "mlflow_run_id",
        "parent",
        "repeat_of",
        "kept",
        "duration_s",
        "detail",
    }
    assert all(trial.keys() == TRIAL | more for trial in trials)
    [listed] = hposvc("ls", "-o", "json").data
    assert listed.keys() == LISTED
    assert (listed["trials"], listed["best_value"]) == (6, best["value"])


def test_a_run_parses_its_spec_once(hposvc, spec, monkeypatch):
    fill, parsed = specs.fill, []
    monkeypatch.setattr(specs, "fill", lambda *given: parsed.append(given[0]) or fill(*given))
    assert hposvc("run", spec(), "--id", "once").code == 0
    assert parsed == [specs.SweepSpec]


@pytest.mark.parametrize("verb", ["resume", "audit", "status"])
def test_a_command_parses_a_recorded_spec_once(hposvc, spec, monkeypatch, verb):
    assert hposvc("run", spec(name=f"for-{verb}"), "--id", "once").code == 0
    fill, parsed = specs.fill, []
    monkeypatch.setattr(specs, "fill", lambda *given: parsed.append(given[0]) or fill(*given))
    assert hposvc(verb, "once").code == 0
    assert parsed == [specs.SweepSpec]


def test_a_sweep_without_a_value_exits_3(hposvc, spec):
    ran = hposvc("run", spec(**curve("broken")), "-o", "json")
    assert ran.code == 3
    assert (ran.data["state"], ran.data["best"]) == ("FAILED", None)
    assert "3 of 3 trials failed before any reported; the first was t0001: ValueError" in ran.err
    assert hposvc("best", "last", "-o", "json").data is None
    assert hposvc("resume", "last").code == 0


def test_validate_prints_types_and_plan(hposvc, spec):
    out = hposvc("validate", spec(), "--set", "scheduler=asha", "--set", "fidelity.max=9").out
    assert re.search(r"x +choice +1, 2, 3, 4, 5, 6 +ordered", out)
    assert re.search(r"scheduler +asha, rungs at 1, 3, 9", out)
    data = hposvc("validate", spec(), "-o", "json").data
    assert data["spec"]["name"] == "valley"
    assert data["parameters"]["x"]["type"] == "choice"


def test_validate_says_where_a_point_is_given_again(hposvc, spec):
    path = spec(initial=[{"x": 2}, {"x": 3}, {"x": 2}])
    answer = hposvc("validate", path)
    assert answer.code == 0
    assert re.search(r"\.ya?ml:\d+:\d+: initial\[2\]: repeats initial\[0\], so the", answer.err)


def test_a_bad_spec_says_where(hposvc, spec):
    answer = hposvc("run", spec(), "--set", "trials.mx=3", "-o", "json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "--set trials.mx: no such key; did you mean 'max'?\n"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scheduler.grace_period=1", "scheduler.grace_period: no such key; here that is fidelity."),
        ("scheduler.eta=3", "scheduler.type: is missing beside eta; choose fifo, asha"),
        ("metric.goal=min", "is 'min'; choose minimize or maximize (did you mean 'minimize'?)"),
        ("num_samples=5", "no such key; here that is trials.max"),
        ("search.method=bayes", "no such search method; did you mean 'gp'?"),
    ],
)
def test_a_setting_in_the_words_of_another_tool_is_answered_with_ours(hposvc, spec, setting, said):
    answer = hposvc("validate", spec(), "--set", setting)
    assert answer.code == 2
    assert said in answer.err


def test_an_id_is_used_once_and_stays_in_its_folder(hposvc, spec):
    assert hposvc("run", spec(), "--id", "mine").code == 0
    again = hposvc("run", spec(), "--id", "mine")
    assert again.code == 2
    assert "hposvc resume mine" in again.err
    assert hposvc("run", spec(), "--id", "../mine").code == 2


def test_a_sweep_whose_cluster_is_not_there_leaves_nothing(hposvc, spec, tmp_path):
    changes = {"engine": "ray", "trainable": "trainables.zoo.digits:DigitsCNN"}
    changes |= {"parameters": {"lr": {"min": 0.1, "max": 1.0}}}
    answer = hposvc("run", spec(**changes), "--id", "mine", "--address", "127.0.0.1:1")
    assert answer.code == 5, answer.err
    assert "no Ray cluster answers at 127.0.0.1:1" in answer.err
    assert hposvc("ls", "-o", "json").data == []
    assert list((tmp_path / "home" / "sweeps").iterdir()) == []
    assert hposvc("run", spec(), "--id", "mine").code == 0


def test_run_with_resume_begins_a_sweep_or_continues_it(hposvc, spec):
    """Cron and requeued jobs run one and the same command."""
    command = ("run", spec(), "--id", "nightly", "--resume")
    assert hposvc(*command).code == 0
    before = hposvc("status", "nightly", "-o", "json").data
    again = hposvc(*command, "-o", "json")
    assert (again.code, again.data["state"]) == (0, "COMPLETED")
    assert again.data == before, "a completed sweep is only summarized"


def test_run_with_resume_continues_a_sweep_whose_driver_is_gone(hposvc, spec):
    api.create(api.Sweeps.open(), specs.load(spec()), "nightly")
    ran = hposvc("run", spec(), "--id", "nightly", "--resume", "-o", "json")
    assert (ran.code, ran.data["state"], ran.data["trials"]["completed"]) == (0, "COMPLETED", 6)


def test_run_with_resume_refuses_another_spec_and_names_the_differences(hposvc, spec):
    command = ("run", spec(), "--id", "nightly", "--resume")
    assert hposvc(*command).code == 0
    other = hposvc(*command, "--set", "trials.max=7", "--set", "seed=3")
    assert other.code == 2
    assert "trials.max is empty (null) there and 7 here; seed is 0 there and 3 here" in other.err
    assert "hposvc extend nightly" in other.err


def test_run_with_resume_says_that_another_driver_is_at_work(hposvc, spec):
    sweeps = api.Sweeps.open()
    row = api.create(sweeps, specs.load(spec()), "nightly")
    lease = Lease(sweeps.journal.store, row.id)
    lease.acquire()
    try:
        ran = hposvc("run", spec(), "--id", "nightly", "--resume")
    finally:
        lease.release()
    assert ran.code == 2
    assert "nightly" in ran.err
    assert "driver" in ran.err


@pytest.mark.parametrize(
    ("given", "message"),
    [((), "--resume: needs the sweep's --id"), (("--id", "a", "--debug"), "--debug: runs one")],
)
def test_resume_without_its_id_is_refused(hposvc, spec, given, message):
    refused = hposvc("run", spec(), "--resume", *given)
    assert refused.code == 2
    assert message in refused.err


@pytest.mark.full
def test_a_dead_tracker_is_named_at_once_and_costs_a_sweep_neither_its_end_nor_its_code(
    hposvc, spec
):
    path = spec(tracking={"uri": "http://127.0.0.1:9"})
    done = hposvc("run", path, "--id", "mine")
    assert done.code == 0, done.err
    assert "MLflow was not sent" in done.out
    assert "when it answers: hposvc resume mine" in done.out
    sent = hposvc("resume", "mine")
    assert sent.code == 5
    assert "MLflow was not sent" in sent.out
