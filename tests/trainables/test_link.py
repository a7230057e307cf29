from pathlib import Path

from trainables.link import LocalLink, Report
from trainables.storage.checkpoint import Saved

SAVED = Saved(2, "/x/2", "00", 10)


def test_reports_are_kept_and_the_order_stops_at_its_step():
    link = LocalLink(stop_at=2)
    first, second = Report(7, 1, {"loss": 1.0}), Report(7, 2, {"loss": 1.0}, SAVED)
    assert link.exchange(first)
    assert not link.exchange(second)
    assert link.reports == [first, second]


def test_without_a_stop_it_goes_on():
    assert LocalLink().exchange(Report(7, 10**6, {}))


def test_a_checkpoint_without_a_report_is_kept_apart():
    link = LocalLink()
    link.keep(SAVED)
    assert (link.kept, link.reports) == ([SAVED], [])
    assert link.once("cache", lambda: Path("/x")) == Path("/x")
