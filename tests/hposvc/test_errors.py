"""Problems of a spec as people read them: a line each."""

from hposvc.errors import Problem, SpecError, dotted


def test_a_path_is_written_as_people_write_it():
    assert dotted(("parameters", "lr", "min")) == "parameters.lr.min"
    assert dotted(("initial", 0, "batch")) == "initial[0].batch"


def test_each_problem_is_one_line_however_long_or_broken_its_key_is():
    for path in (
        ("two\nlines",),
        ("parameters", "two\nlines"),
        ("parameters", "x" * 10_000, "min"),
    ):
        text = str(SpecError([Problem(path, "is wrong")]))
        assert len(text.splitlines()) == 1
        assert len(text) < 500
