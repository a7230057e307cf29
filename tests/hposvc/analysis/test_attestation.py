"""Attested results: whoever changes a figure, the file, the journal or a checkpoint is found out.

If these fail, a claim that somebody made up passes for one that the journal confirms.
"""

import hashlib
import json
import shutil
import sqlite3
from copy import deepcopy
from dataclasses import dataclass

import code_repository
import pytest
import recorded_home
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import make_spec
from sweep_stories import begin, report

from hposvc import Sweep, api
from hposvc.analysis.attestation import JournalPrefix, make_statement, verify
from hposvc.analysis.envelope import key_id, seal
from hposvc.errors import NotFound, SpecError, StoreError
from hposvc.events import Attached, Reported
from hposvc.open_sweep import OpenSweep

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
JOURNALS = sorted(file.stem for file in recorded_home.RECORDED.glob("v*.jsonl"))
SECRET = "opensesame"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a sweep of finalists, whose checkpoints are files of its own."""
    home = tmp_path_factory.mktemp("home")

    def train(params, worker):
        for step in worker.steps():
            folder = worker.scratch()
            (folder / "model.txt").write_text(f"{params['x']} {step}")
            loss = (params["x"] - 2) ** 2 + (worker.seed % 7) / 100 + 1 / step
            worker.report(step, {"loss": loss}, checkpoint=folder)

    Sweep(
        train,
        name="claim",
        metric={"name": "loss", "goal": "minimize"},
        fidelity={"max": 3},
        parameters={"x": {"values": [1, 2, 3]}},
        search="grid",
        trials={"max": 3},
        finalists={"top": 2, "seeds": 2},
        engine="local",
        tracking={"send_to": []},
    ).run(home, progress=False)
    return home


def opened(home, sweep="last"):
    return OpenSweep(api.Sweeps.open(home), sweep)


def signed(statement, key=KEY):
    return json.dumps(seal(json.dumps(statement).encode(), key)).encode()


def checks(home, text, key=KEY):
    sweeps = api.Sweeps.open(home)
    return [*verify(text, key.public_key(), lambda name: OpenSweep(sweeps, name))]


def differing(home, statement):
    return [check.name for check in checks(home, signed(statement)) if check.result == "differs"]


def not_checked(home, statement):
    found = checks(home, signed(statement))
    return {check.name: check.why for check in found if check.result == "not checked"}


@pytest.fixture(scope="module")
def statement(home):
    return make_statement(opened(home))


def leaves(data, path=()):
    """Yield the path of each value in JSON."""
    if isinstance(data, dict | list) and data:
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path


def changed(data, path):
    """Return JSON with another value at a path."""
    data = deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    match place[path[-1]]:
        case bool(value):
            place[path[-1]] = not value
        case int(value):
            place[path[-1]] = value + 1
        case float(value):
            place[path[-1]] = value * 1.01 if value else 1e-3
        case str(value):
            place[path[-1]] = f"{value}x"
        case _:
            place[path[-1]] = "something"
    return data


def dotted(path):
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def test_the_statement_has_the_form_of_in_toto_and_all_of_it_is_confirmed(home, statement):
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert all(
        set(it) == {"name", "digest"} and len(it["digest"]["sha256"]) == 64
        for it in statement["subject"]
    )
    record = opened(home).record()
    sweep, best = record.row.id, record.best()
    folder = f"{sweep}/{best.trial}/{best.checkpoint.name}"
    assert [it["name"] for it in statement["subject"]] == [
        f"{sweep}/events",
        *(f"{folder}/manifest.json", f"{folder}/model.txt"),
    ]
    predicate = statement["predicate"]
    (result,) = predicate["results"]
    assert (result["trial"], result["value"], result["step"]) == (best.trial, best.value, 3)
    assert result["estimate"]["runs"] == 2
    assert predicate["sure"]["noise"]["source"] == "repeats"
    assert predicate["looks"]["trials"] == 3
    assert predicate["looks"]["further_trainings"] == 4
    assert len(predicate["looks"]["finalists"]) == 2
    assert predicate["looks"]["events"]["reported"] == 3 * (3 + 4)
    assert any(line.startswith("# Python ") for line in predicate["environment"])
    found = checks(home, signed(statement))
    assert [check.name for check in found if check.result != "ok"] == ["environment"]
    assert found[0].recomputed == key_id(KEY.public_key())


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_value_can_be_changed_under_the_signature(home, statement, data):
    path = data.draw(st.sampled_from([*leaves(statement)]))
    envelope = json.loads(signed(statement))
    false = seal(json.dumps(changed(statement, path)).encode(), KEY)["payload"]
    (check,) = checks(home, json.dumps({**envelope, "payload": false}).encode())
    assert (check.name, check.result) == ("signature", "differs")


def test_a_statement_of_another_signer_is_refused(home, statement):
    (check,) = checks(home, signed(changed(statement, ("predicate", "results", 0, "value")), OTHER))
    assert (check.name, check.result) == ("signature", "differs")
    assert key_id(OTHER.public_key()) in check.why


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_journal_names_each_false_figure_that_the_right_key_signed(home, statement, data):
    stated = statement["predicate"]
    paths = [path for path in leaves(stated) if path[0] not in ("environment", "sweep")]
    path = data.draw(st.sampled_from([path for path in paths if path != ("journal", "last")]))
    assert differing(home, changed(statement, ("predicate", *path))) == [dotted(path)]


@pytest.mark.parametrize("path", [("journal", "last"), ("sweep",)])
def test_a_statement_about_another_record_holds_in_nothing(home, statement, path):
    false = changed(statement, ("predicate", *path))
    if path == ("sweep",):
        assert "no such sweep" in not_checked(home, false)["journal"]
    else:
        assert differing(home, false) == ["journal.last"]
    for last in range(6):  # as if the sweep had hardly begun
        false["predicate"] |= {"sweep": statement["predicate"]["sweep"]}
        false["predicate"]["journal"]["last"] = last
        assert {"journal.sha256", "results"} <= {*differing(home, false)}
    false["predicate"]["journal"]["last"] = "three"
    assert "results" not in [check.name for check in checks(home, signed(false))]


def test_figures_may_be_rounded_differently_and_no_more(home, statement):
    def with_value(factor):
        other = deepcopy(statement)
        other["predicate"]["sure"]["expected"]["low"] *= factor
        return differing(home, other)

    assert with_value(1 + 1e-12) == []
    assert with_value(1 + 1e-8) == ["sure.expected.low"]


@pytest.fixture
def own_home(home, tmp_path):
    """Return a copy of the home with the same checkpoints, to be changed."""
    (tmp_path / "copy").mkdir()
    for file in home.glob("hposvc.db*"):
        shutil.copy(file, tmp_path / "copy" / file.name)
    return tmp_path / "copy"


def rewrite(home, query, *values):
    with sqlite3.connect(home / "hposvc.db") as connection:
        assert connection.execute(query, values).rowcount == 1
    connection.close()


def test_no_event_can_be_changed_in_the_journal(own_home, statement):
    """Nor be left out; that is damage, which every reader of a journal finds."""
    with sqlite3.connect(own_home / "hposvc.db") as connection:
        rows = connection.execute("select seq, kind, body from events order by seq").fetchall()
    connection.close()
    assert len(rows) == statement["predicate"]["journal"]["last"]
    update = "update events set body = ? where seq = ?"
    for seq, _, body in rows[:: len(rows) // 12]:
        paths = [path for path in leaves(json.loads(body)) if path]
        rewrite(own_home, update, json.dumps(changed(json.loads(body), paths[-1])), seq)
        assert {"journal", "journal.sha256"} & {*differing(own_home, statement)}
        rewrite(own_home, update, body, seq)
    assert not differing(own_home, statement)
    rewrite(own_home, "update events set time = time + 1 where seq = ?", rows[5][0])
    assert "journal.sha256" in differing(own_home, statement)
    rewrite(own_home, "delete from events where seq = ?", rows[-1][0])
    assert "journal.last" in differing(own_home, statement)
    rewrite(own_home, "delete from events where seq = ?", rows[9][0])
    with pytest.raises(StoreError, match="event 10"):
        checks(own_home, signed(statement))


def test_a_report_that_was_changed_is_found_with_all_that_comes_of_it(own_home, statement):
    trial = statement["predicate"]["results"][0]["trial"]
    where = f"kind = 'reported' and body like '%{trial}%' and body like '%\"step\":3%'"
    rewrite(
        own_home,
        "update events set body = replace(body, '\"loss\":', '\"loss\":-') where seq = "
        f"(select min(seq) from events where {where})",
    )
    found = differing(own_home, statement)
    assert {"journal.sha256", "results[0].value", "results[0].metrics.loss"} <= {*found}
    assert f"{statement['predicate']['sweep']}/events" in found


@pytest.mark.parametrize("column", ["spec", "code"])
def test_spec_and_code_can_not_be_changed_in_the_journal(own_home, statement, column):
    other = json.dumps({**statement["predicate"][column], "name": "other"})
    rewrite(own_home, f"update sweeps set {column} = ?", other)
    assert "journal.sha256" in differing(own_home, statement)


@pytest.fixture
def checkpoint(home):
    """Return the folder of the best checkpoint, which is mended afterwards."""
    folder = opened(home).record().best().checkpoint
    kept = {file: file.read_bytes() for file in folder.iterdir()}
    yield folder
    folder.mkdir(exist_ok=True)
    for file, data in kept.items():
        file.write_bytes(data)


@pytest.mark.parametrize("file", ["model.txt", "manifest.json"])
def test_a_changed_file_of_a_checkpoint_is_named_and_attested_no_more(
    home, statement, checkpoint, file
):
    (checkpoint / file).write_text("{}")
    (named,) = differing(home, statement)
    assert named.endswith(f"{checkpoint.name}/{file}")
    with pytest.raises(StoreError, match=f"{file}: expected SHA-256"):
        make_statement(opened(home))


def test_without_its_checkpoint_the_rest_of_a_statement_is_checked(home, statement, checkpoint):
    shutil.rmtree(checkpoint)
    assert not differing(home, statement)
    names = [name for name in not_checked(home, statement) if name != "environment"]
    assert [name.rpartition("/")[2] for name in names] == ["model.txt"]
    again = make_statement(opened(home))
    assert again["subject"] == statement["subject"][:2]
    false = changed(statement, ("subject", 1, "digest", "sha256"))  # of the recorded manifest
    assert [name.rpartition("/")[2] for name in differing(home, false)] == ["manifest.json"]


def test_a_file_that_no_checkpoint_has_is_not_confirmed(home, statement):
    more = {"name": "weights.pt", "digest": {"sha256": "0" * 64}}
    other = {**statement, "subject": [*statement["subject"], more]}
    assert not_checked(home, other)["weights.pt"] == "it is not on this machine"


@pytest.mark.parametrize("name", JOURNALS)
def test_results_of_every_recorded_journal_are_attested_and_confirmed(name, tmp_path):
    """With several metrics, copies, finalists, no last step, and pauses among them."""
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.replay(sweeps, name, "s")
    statement = make_statement(opened(tmp_path))
    assert not differing(tmp_path, statement)
    assert len(statement["subject"]) == 1  # simulated checkpoints have no files
    results = statement["predicate"]["results"]
    assert [it["trial"] for it in results] == [it.trial for it in opened(tmp_path).record().front()]
    assert (len(results) > 1) == (name == "v1-front")


def test_a_journal_has_the_same_hash_under_every_later_version(tmp_path):
    """This is what hposvc 0.1.0 says: a change makes all statements worthless."""
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.replay(sweeps, "v1-finalists", "s")
    assert make_statement(opened(tmp_path))["predicate"]["journal"]["sha256"] == (
        "79189d405a7c7bc040cabc0f1bee2253031a8fabc63a5868ffcd8ce34c61d0cd"
    )


def test_a_field_that_a_later_version_adds_changes_no_hash(tmp_path):
    @dataclass(frozen=True)
    class LaterReported(Reported):
        certainty: float = 1.0

    sweeps = api.Sweeps.open(tmp_path)
    row = api.create(sweeps, make_spec(), "s")
    events = [Attached(1.0, "here:1"), *begin(1, 2.0, {"lr": 0.01}), report(1, 4.0, 1, 0.5)]
    hashes = []
    for last in (events[-1], LaterReported(**vars(events[-1])), report(1, 4.0, 1, 0.0)):
        prefix = JournalPrefix(row)
        for event in [*events[:-1], last]:
            prefix.apply(event)
        hashes.append(prefix.hash.hexdigest())
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_sweep_that_went_on_is_confirmed_up_to_the_event_that_the_statement_names(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    api.create(sweeps, make_spec(), "s")
    first = [Attached(1.0, "here:1"), *begin(1, 2.0, {"lr": 0.01}), report(1, 4.0, 1, 0.5)]
    last = sweeps.journal.append("s", 0, first)
    statement = make_statement(opened(tmp_path))
    assert statement["predicate"]["state"] == "RUNNING"
    more = [*begin(2, 5.0, {"lr": 0.02}), report(2, 6.0, 1, 0.25)]
    sweeps.journal.append("s", last, more)
    assert not differing(tmp_path, statement)
    said = not_checked(tmp_path, statement)["later events"]
    assert said == "the sweep went on to event 7; its best is now t0002"
    assert make_statement(opened(tmp_path))["predicate"]["results"][0]["trial"] == "t0002"


def test_another_sweep_of_the_same_name_does_not_confirm_a_statement(tmp_path):
    statements = []
    for name, at in (("one", 1.0), ("other", 1.5)):
        sweeps = api.Sweeps.open(tmp_path / name)
        api.create(sweeps, make_spec(), "s")
        events = [Attached(at, "here:1"), *begin(1, 2.0, {"lr": 0.01}), report(1, 4.0, 1, 0.5)]
        sweeps.journal.append("s", 0, events)
        statements.append(make_statement(opened(tmp_path / name)))
    assert differing(tmp_path / "one", statements[1]) == ["journal.sha256", "s/events"]


def test_secrets_are_left_out(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    spec = make_spec(
        environment={"env": {"TOKEN": SECRET}},
        notify=[{"webhook": f"https://example.com/{SECRET}"}],
        tracking={"uri": f"http://me:{SECRET}@example.com"},
    )
    api.create(sweeps, spec, "s")
    events = [Attached(1.0, "here:1"), *begin(1, 2.0, {"lr": 0.01}), report(1, 4.0, 1, 0.5)]
    sweeps.journal.append("s", 0, events)
    statement = make_statement(opened(tmp_path))
    assert SECRET not in json.dumps(statement)
    assert statement["predicate"]["spec"]["tracking"]["uri"] == "http://***@example.com"
    assert not differing(tmp_path, statement)


def test_code_is_attested_by_the_trees_of_its_variants(tmp_path):
    repository = code_repository.make(tmp_path / "repository")
    sweeps = api.Sweeps.open(tmp_path / "home")
    spec = api.validate(code_repository.spec(repository, engine="local"), {})
    api.create(sweeps, spec, "s")
    params = {"x": 0.5, "code": next(iter(spec.variants.trees))}
    events = [Attached(1.0, "here:1"), *begin(1, 2.0, params), report(1, 4.0, 1, 0.5)]
    sweeps.journal.append("s", 0, events)
    statement = make_statement(opened(tmp_path / "home"))
    assert statement["predicate"]["code"] == {"variants": spec.variants.trees}
    assert not differing(tmp_path / "home", statement)


def test_code_of_a_command_is_attested_by_the_hashes_of_its_files(tmp_path):
    (tmp_path / "train.py").write_text("print(1)")
    spec = make_spec(
        engine="local",
        trainable=None,
        command=["python", f"{tmp_path / 'train.py'}", "${args}"],
        collect={"stdout": "(?P<loss>.*)"},
    )
    sweeps = api.Sweeps.open(tmp_path / "home")
    api.create(sweeps, spec, "s")
    events = [Attached(1.0, "here:1"), *begin(1, 2.0, {"lr": 0.01}), report(1, 4.0, 1, 0.5)]
    sweeps.journal.append("s", 0, events)
    statement = make_statement(opened(tmp_path / "home"))
    (digest,) = statement["predicate"]["code"]["sha256"].values()
    assert digest == hashlib.sha256(b"print(1)").hexdigest()
    assert not differing(tmp_path / "home", statement)


def test_there_is_nothing_to_attest_before_the_first_value(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    api.create(sweeps, make_spec(), "s")
    with pytest.raises(NotFound, match="no trial of s has a value"):
        make_statement(opened(tmp_path))


def test_a_statement_of_another_kind_is_refused(home, statement):
    with pytest.raises(SpecError, match=r"is a https://slsa.+, not urn:hposvc"):
        checks(home, signed({**statement, "predicateType": "https://slsa.dev/provenance/v1"}))
