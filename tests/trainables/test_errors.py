"""If this fails, a rank that tells the others of its error fails in another way, or they do."""

import pytest

from trainables.errors import (
    causes,
    describe_output,
    is_disk_full,
    out_of_memory,
    picklable,
    tells_storage_fault,
)


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


TRACEBACK = "Traceback (most recent call last):\n"
GROUP = f"""  + Exception Group {TRACEBACK.rstrip()}
  |   File "a.py", line 1, in <module>
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- 2 ----------------
"""
IN_A_GROUP = """    | Traceback (most recent call last):
    |   File "a.py", line 2, in work
    | KeyError: 'b'
    +------------------------------------
"""
HYDRA = """Could not override 'modle'. Did you mean to override model?
Key 'modle' is not in struct
    full_key: modle
    object_type=dict

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
PYDANTIC = f"""{TRACEBACK}  File "a.py", line 1, in <module>
pydantic_core._pydantic_core.ValidationError: 2 validation errors for Config
lr
  Input should be a valid number [type=float_parsing]
name
  Field required
"""
CAUGHT = f"""{TRACEBACK}  File "a.py", line 1, in <module>
KeyError: 'old'
data set missing, giving up
"""
SAID = [
    (f"{GROUP}    | KeyError: 'b'\n", 1, "ExceptionGroup: many (2 sub-exceptions) ValueError: a"),
    (GROUP + IN_A_GROUP, 1, "KeyError: 'b'"),
    (HYDRA, 1, "Could not override 'modle'. Did you mean to override model? | Key 'modle' is not"),
    (PYDANTIC, 1, "2 validation errors for Config lr Input should be a valid number [type=float_p"),
    (CAUGHT, 4, "KeyError: 'old' | data set missing, giving up"),
    (CAUGHT.removesuffix("data set missing, giving up\n"), 3, "KeyError: 'old'"),
]


@pytest.mark.parametrize(("output", "status", "said"), SAID)
def test_an_output_is_described_by_what_raises_or_by_its_last_lines(output, status, said):
    assert said in describe_output(f"epoch 1\n{output}", status)


def test_a_fault_of_the_folder_is_told_by_any_of_its_names(tmp_path, monkeypatch):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    monkeypatch.chdir(real)
    for folder in (real, link):
        for name in (real, link, "."):
            text = f"OSError: [Errno 30] Read-only file system: '{name}/checkpoints/1'"
            assert tells_storage_fault(text, folder)
    assert not tells_storage_fault("[Errno 30] Read-only file system: '/other/file'", link)
    assert tells_storage_fault("I/O error: Input/output error (os error 5)", real)
    assert tells_storage_fault(f"[Errno 117] Structure needs cleaning: '{real}/a'", real)
