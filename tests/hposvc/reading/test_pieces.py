"""The table of what is still to come, held against docs/CONTRACT.md."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hposvc.reading.pieces import LATER, PIECES, not_there_yet
from hposvc.spec import SweepSpec

PAGE = Path(__file__).parents[3] / "docs" / "CONTRACT.md"
DONE = {"1", "2", "3", "4"}  # pieces
BEGUN = {"6"}  # some of it is there
HEADER = "| key | default | values and meaning | piece |"


def rows():
    """(keys, pieces, whole row) of the table of section 2."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index(HEADER) :].split("\n\n")[0].splitlines()[2:]
    for row in table:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        yield re.findall(r"`(\w+)`", cells[0]), set(re.findall(r"\d|next", cells[-1])), row


ROWS = list(rows())
IDS = [keys[0] for keys, _, _ in ROWS]
KNOWN = {field.name for field in fields(SweepSpec)}


def test_the_page_has_the_table():
    assert len(ROWS) >= 19


def test_every_key_of_the_page_is_there_or_still_to_come():
    promised = {key for keys, _, _ in ROWS for key in keys}
    to_come = {later.key for later in LATER}
    assert promised <= KNOWN | to_come
    assert not KNOWN & to_come


def test_every_key_of_the_spec_is_on_the_page():
    example = re.findall(r"^(\w+):", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    on_the_page = {key for keys, _, _ in ROWS for key in keys} | set(example)
    assert on_the_page | {"launch", "collect"} >= KNOWN


@pytest.mark.parametrize(("keys", "pieces", "row"), ROWS, ids=IDS)
def test_what_is_still_to_come_is_promised_for_that_piece(keys, pieces, row):
    promised = pieces | set(re.findall(r"\((\d|next)\)", row))
    to_come = {later.piece for later in LATER if later.key.split(".")[0] in keys}
    assert to_come <= promised - DONE
    assert to_come >= pieces - DONE - BEGUN


def test_what_is_still_to_come_belongs_to_a_key_of_the_page():
    promised = {key for keys, _, _ in ROWS for key in keys} | {"launch", "collect"}
    assert {later.key.split(".")[0] for later in LATER} <= promised


def test_every_piece_has_the_name_that_the_page_gives_it():
    text = PAGE.read_text(encoding="utf-8")
    for piece, name in PIECES.items():
        assert piece == "next" or f"{piece} {name}" in text


def test_a_key_and_a_value_are_told_apart():
    data = {"notify": {}, "resources": {"workers": 2, "gpus_per_worker": "auto"}}
    assert sorted(str(problem) for problem in not_there_yet(data)) == [
        "notify: not there yet (it comes with a later release)",
        "resources.gpus_per_worker: auto is not there yet (it comes with a later release); "
        "give a number",
    ]


def test_what_is_there_passes():
    data = {"scheduler": {"type": "asha"}, "storage": "/data", "failure": {"nan": "stop"}}
    assert list(not_there_yet(data)) == []
