"""Which deaths of slots are blamed on their node; with a real cluster: test_unfit_nodes."""

from hypothesis import given
from hypothesis import strategies as st

from hposvc.backends.ray.node_failures import DEATHS_IN_A_ROW, NodeFailures


def works(losses, node):
    losses.record_work([node], ended=True)


def test_a_node_on_which_slots_die_while_others_work_is_to_blame():
    failures = NodeFailures()
    blamed = []
    for trial in ("t1", "t2", "t3"):
        blamed.append(failures.record_death("bad", [trial]))
        works(failures, "good")
    assert blamed == [False, False, True]


def test_slots_that_die_with_nothing_to_do_count_too():
    failures = NodeFailures()
    blamed = []
    for _ in range(DEATHS_IN_A_ROW):
        blamed.append(failures.record_death("bad", []))
        failures.record_work(["good"], ended=False)
    assert blamed == [False, False, True]


def test_a_trial_that_kills_its_slot_each_time_is_not_the_doing_of_the_node():
    failures = NodeFailures()
    for _ in range(2 * DEATHS_IN_A_ROW):
        assert not failures.record_death("good", ["t1"])
        works(failures, "other")


def test_an_order_that_is_done_there_ends_the_row():
    failures = NodeFailures()
    for number in range(2 * DEATHS_IN_A_ROW):
        assert not failures.record_death("node", [f"t{number}"])
        works(failures, "other")
        if number % 2:
            works(failures, "node")


NODES = ["a", "b", "c"]


@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(["lose", "report", "end"]))))
def test_no_node_is_to_blame_before_its_row_is_full(deeds):
    failures, rows = NodeFailures(), dict.fromkeys(NODES, 0)
    for number, (node, action) in enumerate(deeds):
        if action == "lose":
            rows[node] += 1
            blamed = failures.record_death(node, [f"t{number}"])
            assert not blamed or rows[node] >= DEATHS_IN_A_ROW
        else:
            failures.record_work([node], action == "end")
            rows[node] = 0 if action == "end" else rows[node]
    assert failures.rows.keys() == {node for node, row in rows.items() if row}
