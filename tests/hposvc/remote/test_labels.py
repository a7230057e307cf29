"""What jobs say of their sweeps: the same one, in the same place, and which job of it."""

from pathlib import Path

import pytest

from cluster.jobs import Job
from hposvc import spec as specs
from hposvc.home import Home
from hposvc.reading.problems import SpecError
from hposvc.remote import labels
from hposvc.remote.packing import NOTHING, Packed
from hposvc.remote.parcel import NOWHERE, locate

SPEC = specs.load(
    {
        "trainable": "somewhere:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"min": 0.1, "max": 1.0}},
        "trials": {"max": 2},
    }
)
PACKED = Packed(SPEC, NOTHING, ())


def job(told: dict[str, str], name: str = "s-1") -> Job:
    return Job(name, "SUCCEEDED", "", 0, told)


def test_an_id_stands_for_one_spec_and_one_code():
    first = labels.describe("s-1", PACKED, NOWHERE)
    labels.check_same(job(first), labels.describe("s-1", PACKED, NOWHERE))
    other = Packed(SPEC, NOTHING, (), ("abc",))
    with pytest.raises(SpecError, match="a sweep s-1 with other code; give another --id"):
        labels.check_same(job(first), labels.describe("s-1", other, NOWHERE))
    with pytest.raises(SpecError, match=r"with another spec and other code.*--new"):
        labels.check_same(job({}), first)


def test_a_sweep_goes_on_only_where_it_is(tmp_path: Path):
    here, there = (
        labels.describe("s-1", PACKED, locate(Home.of(tmp_path / name, {}), SPEC, {}))
        for name in ("here", "there")
    )
    labels.check_place(job(here), here)
    with pytest.raises(SpecError, match=r"the journal of s-1 is \S+/there, not \S+/here"):
        labels.check_place(job(there), here)


def test_jobs_of_a_sweep_are_numbered_by_their_ids():
    told = {labels.LABEL: "s~7"}
    assert [labels.number(job(told, name)) for name in ("s~7", "s~7~2", "s~7~11")] == [1, 2, 11]
