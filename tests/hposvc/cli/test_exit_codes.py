import click

from hposvc.cli.exit_codes import exit_code, report
from hposvc.errors import SpecError, fail


def test_an_error_without_an_exit_code_is_a_bug():
    assert exit_code(KeyError("x")) == 1
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(click.exceptions.Abort()) == 130
    assert exit_code(click.BadParameter("x")) == 2


def test_an_error_counts_as_what_it_derives_from():
    class Odd(SpecError):
        pass

    assert exit_code(Odd([])) == 2


def test_a_home_that_cannot_be_written_to_does_not_hide_the_bug(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert report(KeyError("lost"), tmp_path / "file") == 1
    assert "KeyError: 'lost'" in capsys.readouterr().err


def test_a_spec_error_is_told_as_it_is(capsys):
    assert report(fail("is 3", "trials", "max"), None) == 2
    assert capsys.readouterr().err == "trials.max: is 3\n"
