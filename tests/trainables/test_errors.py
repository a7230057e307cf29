"""If this fails, a rank that tells the others of its error fails in another way, or they do."""

from trainables.errors import causes, is_disk_full, out_of_memory, picklable


class Torn(Exception):
    """An exception as people write them: pickle calls it with one argument, the text."""

    def __init__(self, file, line):
        super().__init__(f"{file}, line {line}")


def test_an_error_that_cannot_be_pickled_is_told_by_its_type_and_text():
    assert type(picklable(fine := OSError(28, "full"))) is OSError
    assert picklable(fine).errno == 28
    replacement = picklable(Torn("a.csv", 7))
    assert (type(replacement), str(replacement)) == (RuntimeError, "Torn: a.csv, line 7")
    error = MemoryError("too large")
    error.lock = lambda: None
    replacement = picklable(error)
    assert type(replacement) is RuntimeError
    assert out_of_memory(replacement)


def test_errors_that_were_raised_from_each_other_in_a_circle_are_each_looked_at_once():
    first, second = ValueError("one"), ValueError("another")
    first.__cause__, second.__cause__ = second, first
    assert list(causes(first)) == [first, second]
    assert not out_of_memory(first)
    assert not is_disk_full(first)
    second.args = ("CUDA out of memory",)
    assert out_of_memory(first)
