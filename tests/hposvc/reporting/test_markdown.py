"""Reports in Markdown, with pictures beside them."""

import re
import struct

import odd_sweeps
import pytest

from hposvc import api
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.document import Section
from hposvc.reporting.markdown import escape, markdown


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return odd_sweeps.record(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("name", ["plain", "empty", "front"])
def test_every_picture_that_is_named_is_there(name, sweeps):
    files = markdown([Section.read(OpenSweep(sweeps, name))], "it")
    named = re.findall(r"\]\(([^)]+\.png)\)", files["it.md"])
    assert set(named) == files.keys() - {"it.md"}
    for picture in named:
        assert files[picture].startswith(b"\x89PNG")
        width, height = struct.unpack(">II", files[picture][16:24])
        assert width > 1000
        assert height > 150


def test_the_best_trial_is_in_a_table(sweeps):
    text = markdown([Section.read(OpenSweep(sweeps, "plain"))], "it")["it.md"]
    best = api.load(sweeps, "plain").front()[0]
    assert f"| {best.trial} | {best.value:.5g} |" in text


def test_several_sweeps_begin_with_their_comparison(sweeps):
    sections = [Section.read(OpenSweep(sweeps, name)) for name in ("plain", "one")]
    files = markdown(sections, "it")
    assert "At equal cost" in files["it.md"].split("## plain")[0]
    assert "it-comparison.png" in files
    other = markdown([sections[0], Section.read(OpenSweep(sweeps, "empty"))], "it")
    assert "it-comparison.png" not in other


def test_texts_of_users_are_no_markdown():
    assert escape("a|b *c*\n<d>") == r"a\|b \*c\* \<d\>"
