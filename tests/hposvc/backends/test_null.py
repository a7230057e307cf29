"""The backend that ends a sweep without a driver. If these fail, an end starts a cluster."""

import time

import pytest
from simulated_sweeps import make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.null import NullBackend
from trainables.order import Order


def backend(tmp_path, clock=0.0):
    return NullBackend(Setting("s", make_spec(), tmp_path, tmp_path, clock=clock))


def test_it_has_no_slot_and_takes_no_order(tmp_path):
    null = backend(tmp_path)
    assert (null.capacity(), null.slots(), null.set_slot_limit(4)) == (0, 0, 1)
    with pytest.raises(AssertionError, match="no slot"):
        null.start(Order(1, "t0001", {}, None, 1, 9), {})
    null.decide(1, "stop")
    null.kill(1)
    assert null.events(0.0) == []
    null.close()


def test_its_clock_never_goes_back_behind_the_journal_s(tmp_path):
    later = time.time() + 1e6
    assert later <= backend(tmp_path, clock=later).now() < later + 3600
    assert time.time() - 1 < backend(tmp_path).now() <= time.time()
