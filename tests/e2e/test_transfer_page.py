"""docs/how-to/transfer.md: its blocks work as they stand there, one after the other."""

import shlex

import pages
import pytest
from ruamel.yaml import YAML

from hposvc.analysis import rate_transfer

PAGE = pages.read("how-to/transfer.md")
(PROGRAM,) = pages.blocks("how-to/transfer.md")
SWEEP, FINALISTS = pages.blocks("how-to/transfer.md", "yaml")
(COMMANDS,) = pages.blocks("how-to/transfer.md", "bash")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_blocks_run_one_after_the_other(python, tmp_path):
    """With fewer trials and epochs than there, which tell less."""
    (tmp_path / "wide_digits.py").write_text(PROGRAM)
    (tmp_path / "widths.yaml").write_text(SWEEP)
    for line in COMMANDS.splitlines():
        _, *arguments = shlex.split(line)
        if arguments[0] == "run":
            arguments += ["--set", "trials.max=24", "--set", "fidelity.max=2"]
        assert python("-m", "hposvc", *arguments, cwd=tmp_path).stdout, line
    assert (tmp_path / "scaled.svg").exists()
    small = YAML(typ="safe").load(SWEEP + FINALISTS)
    small["parameters"]["width"] = 64
    with (tmp_path / "small.yaml").open("w") as file:
        YAML().dump(small, file)
    few = ("--set", "trials.max=2", "--set", "fidelity.max=1", "-o", "json")
    assert '"width": 512' in python("-m", "hposvc", "run", "small.yaml", *few, cwd=tmp_path).stdout


def test_it_has_the_bounds_of_the_answers():
    low, high = 2**-rate_transfer.STILL, 2**rate_transfer.STILL
    assert f"{low:.2f} to {high:.2f} times" in PAGE
    for answer in ("transfers", "does not transfer", "cannot tell"):
        assert f"| `{answer}` |" in PAGE
