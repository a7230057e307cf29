import io
import logging
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from steering_texts import HIDES, STEERS, steering

from hposvc.views.console import (
    PlainConsole,
    PlainFormatter,
    console,
    emit,
    make_table,
    note,
    plain,
    plain_log,
    show,
)
from hposvc.views.dashboard import Configuration, CutLine
from hposvc.views.live import Waiting

TEXTS = st.text(st.one_of(st.sampled_from(STEERS + HIDES), st.characters()), max_size=20)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_is_cut_where_nobody_looks_at_a_screen(capsys):
    long = "a-very-" * 30 + "long-name"
    table = make_table("sweep")
    table.add_row(long)
    show(table)
    assert long in capsys.readouterr().out


@given(TEXTS)
def test_a_plain_text_steers_nothing_and_is_as_long_as_before(text):
    assert not steering(plain(text))
    assert len(plain(text)) == len(text)
    assert plain(plain(text)) == plain(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_what_people_write_stays(text):
    assert plain(text) == text


def everywhere(text):
    """Return an object for the console with the text in all places where ours have one."""
    table = Table(text, title=text, caption=text)
    table.add_column(Text(text))
    table.add_row(Text(text, "bold"), text)
    table.add_row(Configuration([(text, text)]), CutLine(text, "red"))
    spans = Text.assemble((text, "red"), "and ", (text, "green"))
    return Group(Panel(table, title=text, subtitle=text), spans, text, Waiting(text))


@settings(deadline=None, max_examples=10)
@given(TEXTS)
def test_no_place_of_a_view_lets_a_text_steer_the_terminal(text):
    for stream in (io.StringIO(), Terminal()):
        console(stream).print(everywhere(text), text, sep=text)
        assert not steering(Text.from_ansi(stream.getvalue()).plain)
        assert "\x1b" not in stream.getvalue() or stream.isatty()


def test_a_text_keeps_its_style_and_its_neighbours():
    out = io.StringIO()
    PlainConsole(out, width=40).print(Text.assemble(("a\u202eb", "bold"), "c"), "d")
    assert out.getvalue() == "a\ufffdbc d\n"


def test_a_frame_stands_straight_whatever_is_in_it():
    out = io.StringIO()
    PlainConsole(out, width=30).print(Panel(Group(STEERS[:9], Text(HIDES[:9]), "plain")))
    assert {len(line) for line in out.getvalue().splitlines()} == {30}


@pytest.mark.parametrize("write", [note, show])
def test_messages_are_plain(capsys, write):
    write(f"no {STEERS}{HIDES} luck")
    printed = "".join(capsys.readouterr())
    assert printed.startswith("no \ufffd")
    assert not steering(printed)


def test_a_warning_that_nobody_handles_is_plain():
    record = logging.LogRecord("hposvc", 30, "", 0, "no %s", (STEERS,), None)
    assert not steering(PlainFormatter().format(record))


def test_data_is_exact_but_for_a_terminal(capsys, monkeypatch):
    emit(f"a,{HIDES[:5]}\n")
    assert capsys.readouterr().out == f"a,{HIDES[:5]}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    emit(f"a,{HIDES[:5]}\n")
    assert not steering(capsys.readouterr().out)


def test_a_log_has_no_colours_and_of_a_bar_what_a_terminal_keeps():
    log = "\x1b[31mred\x1b[0m\r\n 10 %\r 20 %\x1b\x1b[0m[2J\n"
    assert plain_log(log) == "red\n 20 %\ufffd[2J\n"
    assert plain_log("waiting\rdone\nlong\r\x1b[Kx\n5 %\r") == "doneing\nx\n5 %"


def test_a_table_in_a_pipe_has_no_padding_and_columns_set_its_width(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = make_table("sweep", "why")
    table.add_row("a", "word " * 30)
    table.add_row("b", "short")
    show(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) > 140
    assert [line for line in lines if line.endswith(" ")] == []
    monkeypatch.setenv("COLUMNS", "60")
    show(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
