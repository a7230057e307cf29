"""how-to/lora.md against the code. If it fails, people who fine-tune copy what does not work."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest

from hposvc.cli.main import main
from trainables.lora import LoraOptions

ROOT = Path(__file__).parents[3]
PAGE = pages.read("how-to/lora.md")
BLOCKS = pages.fenced(PAGE)


def test_no_block_is_in_a_language_that_nobody_runs():
    assert {language for language, _ in BLOCKS} == {"python", "yaml"}


@pytest.mark.full
def test_programs_run_one_after_the_other(tmp_path):
    text = "\n".join(text for language, text in BLOCKS if language == "python")
    (tmp_path / "flowers.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "flowers.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    loss, size, _ = ended.stdout.split()
    assert float(loss) < 1.1  # a guess among three
    assert int(size) < 40_000


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "yaml"])
def test_specs_are_valid(tmp_path, monkeypatch, capsys, text):
    program = next(text for language, text in BLOCKS if language == "python")
    (tmp_path / "flowers.py").write_text(program)
    (tmp_path / "spec.yaml").write_text(text)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "flowers", raising=False)
    with pytest.raises(SystemExit) as left:
        main(["validate", "spec.yaml"])
    assert left.value.code in (None, 0), capsys.readouterr().err


def test_the_page_names_every_option():
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert named == {field.name for field in dataclasses.fields(LoraOptions)}
