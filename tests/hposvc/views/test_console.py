from hposvc.views.console import show
from hposvc.views.tables import make_table


def test_nothing_is_cut_where_nobody_looks_at_a_screen(capsys):
    long = "a-very-" * 30 + "long-name"
    table = make_table("sweep")
    table.add_row(long)
    show(table)
    assert long in capsys.readouterr().out
