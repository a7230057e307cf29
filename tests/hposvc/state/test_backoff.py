from hposvc.state.backoff import LONGEST_PAUSE_S, pause_s


def test_the_first_failure_waits_for_nothing_and_each_further_one_twice_as_long():
    assert [pause_s(count) for count in range(6)] == [0.0, 0.0, 2.0, 4.0, 8.0, 16.0]
    assert pause_s(50) == LONGEST_PAUSE_S
