from pathlib import Path

from trainables.link import LocalLink, Report
from trainables.storage.checkpoint import Saved

SAVED = Saved(2, "/x/2", "00", 10)


def test_reports_are_kept_and_the_order_stops_at_its_step():
    link = LocalLink(stop_at=2)
    metrics = {"loss": 1.0}
    assert link.exchange(1, metrics, None)
    assert not link.exchange(2, metrics, SAVED)
    metrics["loss"] = 9.0  # a trainable may use its dict again
    assert link.reports == [Report(1, {"loss": 1.0}, None), Report(2, {"loss": 1.0}, SAVED)]


def test_without_a_stop_it_goes_on():
    assert LocalLink().exchange(10**6, {}, None)


def test_a_checkpoint_without_a_report_is_kept_apart():
    link = LocalLink()
    link.keep(SAVED)
    assert (link.kept, link.reports) == ([SAVED], [])
    assert link.once("cache", lambda: Path("/x")) == Path("/x")
