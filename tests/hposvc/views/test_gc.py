from printed import text_of

from hposvc.operations.garbage import Garbage
from hposvc.views.gc import garbage_table

ITEMS = [
    Garbage("checkpoint", "/home/a", 2 * 2**20, "no journal has it"),
    Garbage("folder", "/home/b", 2**20, "of no sweep"),
]


def test_the_sum_is_that_of_all_sizes_and_says_what_was_done():
    text = text_of(garbage_table(ITEMS, freed=True))
    assert "/home/a" in text
    assert "of no sweep" in text
    assert text.rstrip().splitlines()[-1].strip() == "3 MiB freed"
    assert "3 MiB to be freed" in text_of(garbage_table(ITEMS, freed=False))
