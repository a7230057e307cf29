import pickle

import pytest

from trainables.stop_signals import Notice, Preempted, StopTrial


def test_an_except_of_the_user_s_does_not_catch_the_end_of_an_order():
    def careful():
        try:
            raise Preempted("the node goes")
        except Exception:  # noqa: BLE001 - as people write it
            return "caught"

    with pytest.raises(StopTrial) as stopped:
        careful()
    assert stopped.value.reason == "the node goes"


def test_a_copy_in_another_process_has_not_got_this_process_s_notice():
    notice = Notice()
    notice.give()
    assert not pickle.loads(pickle.dumps(notice)).given
