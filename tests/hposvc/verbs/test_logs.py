from pathlib import Path

from trainables.runtime.assignment import log_file


def curve(name):
    return {"engine": {"type": "simulate", "curve": f"curves:{name}"}}


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
