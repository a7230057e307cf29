"""`hposvc import`: another tool's spec on stdout, what it lost on stderr."""

SWEEP = """\
program: train.py
method: random
metric: {name: loss}
parameters: {lr: {min: 0.1, max: 0.2}}
run_cap: 3
entity: us
"""


def test_import_prints_a_spec_that_validates(hposvc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text(SWEEP)
    (tmp_path / "train.py").write_text("")
    answer = hposvc("import", "theirs.yaml")
    assert answer.code == 0
    assert "theirs.yaml:6:1: entity" in answer.err
    (tmp_path / "ours.yaml").write_text(answer.out)
    assert hposvc("validate", "ours.yaml").code == 0
    assert hposvc("import", "ours.yaml").code == 2
    assert hposvc("import", "theirs.yaml", "--from", "nothing").code == 2


def test_a_spec_that_is_to_be_corrected_is_printed_with_what_is_wrong_by_its_lines(
    hposvc, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text(SWEEP.replace("loss}", "loss, goal: minimise}"))
    (tmp_path / "train.py").write_text("")
    answer = hposvc("import", "theirs.yaml")
    assert answer.code == 2
    assert "theirs.yaml:6:1: entity" in answer.err
    lines = answer.out.splitlines()
    (wrong,) = [number for number, line in enumerate(lines, 1) if "minimise" in line]
    assert f"the printed spec:{wrong}:" in answer.err
    (tmp_path / "ours.yaml").write_text(answer.out.replace("minimise", "minimize"))
    assert hposvc("validate", "ours.yaml").code == 0
