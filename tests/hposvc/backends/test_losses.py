"""When slots that die are their node's doing; what a real cluster does then is test_unfit_nodes."""

from hypothesis import given
from hypothesis import strategies as st

from hposvc.backends.losses import ROW, Losses


def works(losses, node):
    losses.serve([node], ended=True)


def test_a_node_on_which_slots_die_while_others_work_is_to_blame():
    losses = Losses()
    found = []
    for trial in ("t1", "t2", "t3"):
        found.append(losses.lose("bad", [trial]))
        works(losses, "good")
    assert found == [False, False, True]


def test_slots_that_die_with_nothing_to_do_count_too():
    losses = Losses()
    found = []
    for _ in range(ROW):
        found.append(losses.lose("bad", []))
        losses.serve(["good"], ended=False)
    assert found == [False, False, True]


def test_a_trial_that_kills_its_slot_each_time_is_not_the_doing_of_the_node():
    losses = Losses()
    for _ in range(2 * ROW):
        assert not losses.lose("good", ["t1"])
        works(losses, "other")


def test_where_nothing_works_no_node_is_to_blame():
    losses = Losses()
    for number in range(2 * ROW):
        assert not losses.lose("one", [f"t{number}"])
        assert not losses.lose("two", [f"u{number}"])


def test_an_order_that_is_done_there_ends_the_row():
    losses = Losses()
    for number in range(2 * ROW):
        assert not losses.lose("node", [f"t{number}"])
        works(losses, "other")
        if number % 2:
            works(losses, "node")


def test_a_report_alone_does_not_end_the_row():
    losses = Losses()
    for number in range(ROW):
        losses.serve(["bad"], ended=False)
        works(losses, "good")
        assert losses.lose("bad", [f"t{number}"]) is (number == ROW - 1)
        works(losses, "good")


NODES = ["a", "b", "c"]


@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(["lose", "report", "end"]))))
def test_no_node_is_to_blame_before_its_row_is_full(deeds):
    losses, rows = Losses(), dict.fromkeys(NODES, 0)
    for number, (node, deed) in enumerate(deeds):
        if deed == "lose":
            rows[node] += 1
            blamed = losses.lose(node, [f"t{number}"])
            assert not blamed or rows[node] >= ROW
        else:
            losses.serve([node], deed == "end")
            rows[node] = 0 if deed == "end" else rows[node]
    assert losses.rows.keys() == {node for node, row in rows.items() if row}
