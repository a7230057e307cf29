"""Probes of this machine. If these fail, a node is told apart by what it is not."""

import json
import time

from cluster import probes

NO_GPU = "print('noise'); print('[[], []]')"


def test_a_machine_describes_itself_in_json(tmp_path):
    folders = {"home": str(tmp_path), "storage": str(tmp_path / "none")}
    seen = probes.examine((*probes.PACKAGES, "no_such_package"), None, 20.0, folders)
    assert json.loads(json.dumps(seen)) == seen
    assert seen["packages"]["no_such_package"] is None
    assert len({seen["packages"][name]["origin"] for name in probes.PACKAGES}) == 1
    assert seen["disks"]["home"]["free"] > 0
    assert seen["disks"]["storage"] is None
    assert seen["torch"] is None


def test_the_digest_is_that_of_the_files(tmp_path, monkeypatch):
    def digest():
        return probes.examine(("a_package_of_ours",), None, 20.0, {})["packages"]

    folder = tmp_path / "a_package_of_ours"
    folder.mkdir()
    (folder / "__init__.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = digest()
    assert digest() == first
    (folder / "__init__.py").write_text("A = 2\n")
    assert digest() != first


def test_the_last_line_of_a_child_process_is_its_answer():
    assert probes._run_json(NO_GPU, 20.0) == ([[], []], "noise\n[[], []]\n", "")


def test_a_child_process_that_fails_or_takes_too_long_says_why():
    answer, _, error = probes._run_json("raise ValueError('no torch')", 20.0, nothing=[])
    assert (answer, error) == ([], "ValueError: no torch")
    answer, _, error = probes._run_json("import time; time.sleep(60)", 0.2)
    assert answer is None
    assert error == "no answer within 0.2 s"


def test_the_clock_is_the_machine_s():
    assert abs(probes.clock() - time.time()) < 5
