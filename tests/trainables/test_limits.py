"""Fields that are read from JSON keep their limits, and cost ranks no import of pydantic."""

import math
import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from trainables import limits


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (limits.Count, -1),
        (limits.Count, True),
        (limits.Count, "3"),
        (limits.Step, 0),
        (limits.Step, 2**53 + 1),
        (limits.Flag, 1),
        (limits.FiniteNumber, math.inf),
        (limits.Number, "1.5"),
        (limits.Number, "nan"),
        (limits.Number, True),
        (limits.Number, None),
        (limits.Name, ""),
        (limits.Text, "x" * 4097),
        (limits.Text, "\ud800"),
    ],
)
def test_what_breaks_a_limit_is_refused(kind, value):
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


def test_a_number_may_be_a_word_where_json_has_none():
    read = TypeAdapter(limits.Number).validate_python
    assert [read(value) for value in (1, 0.5, "Infinity", "-Infinity")] == [
        *(1.0, 0.5),
        *(math.inf, -math.inf),
    ]
    assert math.isnan(read("NaN"))
    schema = TypeAdapter(limits.Number).json_schema()
    words, number = {"enum": [*limits.NOT_FINITE], "type": "string"}, {"type": "number"}
    assert schema == {"anyOf": [number, words]}


def test_a_rank_imports_no_pydantic():
    code = "import sys, trainables.runtime.ranks; print('pydantic' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "False", found.stdout + found.stderr
