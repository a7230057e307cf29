from pathlib import Path

from trainables.runtime.assignment import log_file


def curve(name):
    return {"engine": {"type": "simulate", "curve": f"curves:{name}"}}


def test_ls_looks_for_project_tag_and_age(hposvc, spec):
    hposvc("run", spec())
    for fitting in (["--project", "tests"], ["--tag", "team"], ["--tag", "team=blue"]):
        assert len(hposvc("ls", *fitting, "-o", "json").data) == 1
    assert len(hposvc("ls", "--since", "1h", "-o", "json").data) == 1
    for other in (["--project", "x"], ["--tag", "team=red"], ["--since", "2999-01-01"]):
        assert hposvc("ls", *other, "-o", "json").data == []
    assert hposvc("ls", "--since", "yesterday").code == 2


def test_trials_are_chosen_and_go_into_a_file(hposvc, spec):
    hposvc("run", spec(), "--id", "valley")
    best = hposvc("trials", "valley", "--top", "2", "-o", "json").data
    assert [abs(trial["params"]["x"] - 3) for trial in best] == [0, 1]
    lines = hposvc("trials", "valley", "--where", "x<3", "--csv").out.splitlines()
    assert lines[0].startswith("trial,state,reason,step,duration_s,attempts,metrics.loss,params.x")
    assert len(lines) == 3


def test_logs_are_followed_to_the_end_of_the_trial(hposvc, spec, tmp_path):
    hposvc("run", spec(), "--id", "mine")
    file = log_file(tmp_path / "home" / "sweeps" / "mine", "t0001", 1, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("epoch 1\n")
    assert hposvc("logs", "mine", "t0001", "-f").out.endswith("rank 0 <==\nepoch 1\n")


def test_logs_are_those_of_the_failed_or_else_of_the_last(hposvc, spec, tmp_path):
    hposvc("run", spec(**curve("torn")), "--id", "mine")
    without = hposvc("logs", "mine")
    assert without.out.endswith("ValueError: 2 is no good\n")
    assert without.err == "no log files; the record has these errors\n"
    assert hposvc("logs", "mine", "-o", "json").data == []
    trials = hposvc("trials", "mine", "-o", "json").data
    [failed] = [trial["trial"] for trial in trials if trial["state"] == "FAILED"]
    for order, rank in [(2, 0), (10, 1), (10, 0)]:
        file = log_file(tmp_path / "home" / "sweeps" / "mine", failed, order, rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"order {order} rank {rank} wrote {{this}}\n")
    logs = hposvc("logs", "mine", "-o", "json").data
    assert [(log["trial"], log["order"], log["rank"]) for log in logs] == [
        (failed, 2, 0),
        (failed, 10, 0),
        (failed, 10, 1),
    ]
    assert logs[0]["text"] == "order 2 rank 0 wrote {this}\n"
    assert Path(logs[0]["path"]).is_file()
    out = hposvc("logs", "mine", failed, "--rank", "1").out
    assert out == "order 10 rank 1 wrote {this}\n"
    assert f"==> {failed}, order 10, rank 1: " in hposvc("logs", "mine", failed).out
