"""Names are the field's words or plain nouns, never pictures that a newcomer has to guess at."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# "room" is left out: there is room on a disk, or for another slot.
PICTURES = (
    r"shel(?:f|ves)|crews?|desks?|berths?|parcels?|pulses?|couriers?|post_?offices?|buried|bury"
)
WORD = re.compile(rf"(?<![a-z])(?:{PICTURES})(?![a-z])", re.IGNORECASE)
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def pictures(text: str) -> list[str]:
    """Return the banned words of a line, those within names of classes too."""
    return WORD.findall(CAPITAL.sub("_", text))


@pytest.mark.parametrize("package", ["hposvc", "searchers", "trainables", "cluster"])
def test_no_name_and_no_sentence_of_the_source_is_a_picture(package):
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {', '.join(found)}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := pictures(line))
    ]
    assert not wrong, "name the thing instead:\n" + "\n".join(wrong)


def test_no_sentence_of_a_recipe_is_a_picture():
    pages = sorted((ROOT / "docs" / "how-to" / "recipes").glob("*.md"))
    assert pages
    wrong = {page.name: found for page in pages if (found := pictures(page.read_text()))}
    assert not wrong


@pytest.mark.parametrize("line", ["class PostOffice:", "a Courier", "name='desk'", "two berths"])
def test_a_picture_is_found(line):
    assert pictures(line)


def test_words_that_hold_one_are_none():
    assert not pictures("impulse, desktop, screws, unburied, there is room")
