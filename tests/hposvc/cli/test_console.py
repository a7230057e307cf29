def test_nothing_is_cut_where_nobody_looks_at_a_screen(hposvc, spec):
    long = "a-very-" * 10 + "long-name"
    assert hposvc("run", spec(), "--id", long).code == 0
    assert long in hposvc("ls").out
