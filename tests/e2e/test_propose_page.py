"""docs/how-to/propose.md: its blocks work as they stand there, one after the other."""

import shlex

import pages
import pytest

BLOCKS = pages.fenced(pages.read("how-to/propose.md"))


@pytest.mark.timeout(300)
def test_the_blocks_run_one_after_the_other(python, tmp_path):
    for number, (language, text) in enumerate(BLOCKS):
        if language == "yaml":
            (tmp_path / "valley.yaml").write_text(text)
        elif language == "python":
            name = "valley.py" if number == 0 else f"program_{number}.py"
            (tmp_path / name).write_text(text)
            said = python(name, cwd=tmp_path).stdout
            assert number == 0 or "'x': 0.35" in said or "'lr': 0.001" in said
        else:
            for line in text.splitlines():
                _, *arguments = shlex.split(line)
                assert python("-m", "hposvc", *arguments, cwd=tmp_path).stdout, line
    trials = python("-m", "hposvc", "trials", "last", "-o", "json", cwd=tmp_path).stdout
    assert '"x": 0.4' in trials
    assert '"proposed": 1' in python("-m", "hposvc", "status", "last", "-o", "json").stdout
