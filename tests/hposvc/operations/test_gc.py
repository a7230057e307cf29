"""Compression of ended sweeps' events, beside drivers that may begin at any moment."""

import pytest
from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.journal.lease import Lease
from hposvc.operations.gc import compress


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    opened = api.Sweeps.open(tmp_path / "home")
    row = api.create(opened, make_spec(), "valley")
    Lab(opened.journal, tmp_path).run(specs.restore(row.spec), "valley")
    return opened


def test_an_ended_sweep_is_compressed_once_and_reads_as_before(sweeps):
    before = list(sweeps.journal.read("valley"))
    garbage = compress(sweeps, "valley", dry_run=True)
    assert (garbage.what, garbage.path) == ("journal", "valley")
    assert garbage.size == sweeps.journal.pack("valley").saved
    assert f"{len(before)} events" in garbage.why
    assert compress(sweeps, "valley") == garbage
    assert list(sweeps.journal.read("valley")) == before
    assert compress(sweeps, "valley") is None


def test_a_sweep_that_has_not_ended_stays_as_it_is(sweeps):
    api.create(sweeps, make_spec(), "other")
    assert compress(sweeps, "other") is None


def test_a_sweep_with_a_driver_is_left_to_it(sweeps):
    before = list(sweeps.journal.read("valley"))
    lease = Lease(sweeps.journal.store, "valley")
    lease.acquire()
    try:
        assert compress(sweeps, "valley") is None
    finally:
        lease.release()
    assert list(sweeps.journal.read("valley")) == before
