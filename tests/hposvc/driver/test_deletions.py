"""Deletions, for which a driver does not wait, and which a store may refuse for a while."""

import threading

from hposvc.driver import deletions
from hposvc.driver.deletions import Deletions
from trainables.storage.checkpoint import Saved


def saved(number):
    return Saved(number, f"t0001/1-{number}", "", 100)


def test_who_has_a_checkpoint_deleted_does_not_wait_for_the_store():
    go_on, deleted = threading.Event(), []

    def slowly(one):
        assert go_on.wait(20)
        deleted.append(one)

    deleting = Deletions("s", slowly)
    deleting.delete([saved(1)])
    deleting.delete([saved(2), saved(3)])
    assert deleted == []
    go_on.set()
    deleting.close()
    assert deleted == [saved(1), saved(2), saved(3)]


def test_what_a_store_refuses_is_counted_until_it_is_deleted(monkeypatch, caplog):
    monkeypatch.setattr(deletions, "RETRY_S", 0.0)
    refused, tried, deleted = {saved(1), saved(2)}, threading.Event(), []

    def remove(one):
        if one == saved(4):
            tried.set()
        if one in refused:
            raise OSError("slow down")
        deleted.append(one)

    deleting = Deletions("s", remove)
    deleting.delete([saved(1), saved(2), saved(3), saved(4)])
    assert tried.wait(20)
    assert deleting.undeleted_bytes == 200
    refused.remove(saved(1))
    deleting.close()
    assert (deleting.undeleted_bytes, set(deleted)) == (100, {saved(1), saved(3), saved(4)})
    assert caplog.text.count("slow down") == 2, "once for each"
    assert "s: 1 checkpoints could not be deleted" in caplog.text
