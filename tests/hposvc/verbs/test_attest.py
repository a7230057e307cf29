"""`hposvc attest`: one command writes a result, another says whether it holds, by its exit code."""

import subprocess

import pytest

from hposvc import load

FINALISTS = {"top": 2, "seeds": 2}


@pytest.fixture
def ran(hposvc, spec, tmp_path, monkeypatch):
    """Run a sweep `s`, and work in a folder of the test's own."""
    file = spec(trials={"max": 6}, finalists=FINALISTS, tracking={"send_to": []})
    assert hposvc("run", file, "--id", "s").code == 0
    monkeypatch.chdir(tmp_path)
    return hposvc


def rows(answer):
    return {row["name"]: row for row in answer.data}


def results(answer):
    return {row["result"] for row in answer.data}


def test_a_result_is_written_here_and_confirmed(ran, tmp_path):
    code, out, err = ran("attest", "last")
    assert (code, out, err) == (0, "s-result.json\n", "")
    assert ran("attest", "s", "-o", "json").data == {"file": "s-result.json"}
    code, out, _ = ran("attest", "--verify", "s-result.json")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    value = repr(load("s", tmp_path / "home").best().value)
    assert ["results[0].value", value, value, "ok"] in lines
    assert ["looks.trials", "6", "6", "ok"] in lines
    assert sum(line[0].startswith("spec") for line in lines if line) == 1


def test_who_has_the_public_key_alone_is_told_what_could_not_be_checked(ran, tmp_path):
    ran("attest", "s")
    elsewhere = ("--home", tmp_path / "elsewhere", "attest", "--verify", "s-result.json")
    code, _, err = ran(*elsewhere)
    assert code == 2
    assert err.startswith(f"--public-key: {tmp_path / 'elsewhere' / 'attest.pub'} is no key")
    public = ("--public-key", tmp_path / "home" / "attest.pub")
    code, out, _ = ran(*elsewhere, *public)
    assert code == 4
    assert "not checked: s: no such sweep" in out


def test_a_key_of_ones_own_signs_and_the_homes_does_not_vouch_for_it(ran):
    make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", "mine.pem"]
    if subprocess.run(make, check=False).returncode:
        pytest.skip("this openssl knows no ed25519")
    subprocess.run(
        ["openssl", "pkey", "-in", "mine.pem", "-pubout", "-out", "mine.pub"], check=True
    )
    assert ran("attest", "s", "--key", "mine.pem", "--out", "to/mine.json").out == "to/mine.json\n"
    assert ran("attest", "--verify", "to/mine.json", "--public-key", "mine.pub").code == 0
    assert ran("attest", "s", "--out", "theirs.json").code == 0
    code, out, _ = ran("attest", "--verify", "to/mine.json")
    assert code == 20
    assert "differs: it is signed by the key" in out


def test_a_sweep_that_was_extended_is_confirmed_as_it_was(ran):
    ran("attest", "s")
    assert ran("extend", "s", "--set", "fidelity.max=5").code == 0
    answer = ran("attest", "--verify", "s-result.json", "-o", "json")
    assert answer.code == 0
    assert results(answer) == {"ok", "not checked"}
    assert "the sweep went on to event" in rows(answer)["later events"]["why"]
    assert ran("attest", "s").code == 0
    after = rows(ran("attest", "--verify", "s-result.json", "-o", "json"))
    assert after["looks.events"]["result"] == "ok"
    assert after["results[0].step"]["stated"] == 5


def test_what_was_excluded_and_learned_counts_among_the_looks(ran):
    assert ran("exclude", "s", "t0001", "--because", "wrong data").code == 0
    assert (
        ran("fork", "s", "--id", "f", "--set", "search=random", "--set", "trials.max=2").code == 0
    )
    for sweep, name, stated in (
        ("s", "looks.excluded.t0001", "wrong data"),
        ("f", "looks.learned_from.s", 5),
    ):
        ran("attest", sweep)
        answer = ran("attest", "--verify", f"{sweep}-result.json", "-o", "json")
        assert answer.code == 0
        assert rows(answer)[name]["stated"] == rows(answer)[name]["recomputed"] == stated


def test_another_sweep_under_the_same_id_is_refused_by_name(ran, spec):
    ran("attest", "s")
    assert ran("rm", "s", "--yes").code == 0
    file = spec(trials={"max": 6}, tracking={"send_to": []})
    assert ran("run", file, "--id", "s").code == 0
    answer = ran("attest", "--verify", "s-result.json", "-o", "json")
    assert answer.code == 20
    differing = {name for name, row in rows(answer).items() if row["result"] == "differs"}
    assert {"journal.sha256", "spec.finalists", "looks.further_trainings"} <= differing


def test_words_that_say_nothing_to_do_are_refused(ran):
    for words in (
        (),
        ("s", "--verify", "spec.yaml"),
        ("--verify", "spec.yaml", "--out", "x.json"),
        ("s", "--public-key", "x.pub"),
        ("--verify", "nothing.json"),
        ("--verify", "spec.yaml"),
        ("s", "--key", "spec.yaml"),
    ):
        code, _, err = ran("attest", *words)
        assert (code, "Traceback" in err) == (2, False), words
    assert ran("attest", "nothing").code == 4


def test_python_writes_the_same(ran, tmp_path):
    file = load("s", tmp_path / "home").attest(tmp_path / "result.json")
    assert file == tmp_path / "result.json"
    assert ran("attest", "--verify", file).code == 0
