"""The metadata of jobs: comparing spec, code and places, and numbering a sweep's jobs."""

from pathlib import Path

import pytest

from cluster.jobs import Job
from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.journal.home import Home
from hposvc.remote import job_metadata
from hposvc.remote.archive import EMPTY_ARCHIVE, SourceArchive
from hposvc.remote.job_payload import ALL_ON_HEAD, locate

SPEC = specs.load(
    {
        "trainable": "somewhere:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"min": 0.1, "max": 1.0}},
        "trials": {"max": 2},
    }
)
PACKED = SourceArchive(SPEC, EMPTY_ARCHIVE, ())


def job(told: dict[str, str], name: str = "s-1") -> Job:
    return Job(name, "SUCCEEDED", "", 0, told)


def test_an_id_stands_for_one_spec_and_one_code():
    first = job_metadata.describe("s-1", PACKED, ALL_ON_HEAD)
    job_metadata.check_same(job(first), job_metadata.describe("s-1", PACKED, ALL_ON_HEAD))
    other = SourceArchive(SPEC, EMPTY_ARCHIVE, (), ("abc",))
    with pytest.raises(SpecError, match="a sweep s-1 with other code; give another --id"):
        job_metadata.check_same(job(first), job_metadata.describe("s-1", other, ALL_ON_HEAD))
    with pytest.raises(SpecError, match=r"with another spec and other code.*--new"):
        job_metadata.check_same(job({}), first)


def test_a_sweep_goes_on_only_where_it_is(tmp_path: Path):
    here, there = (
        job_metadata.describe("s-1", PACKED, locate(Home.of(tmp_path / name, {}), SPEC, {}))
        for name in ("here", "there")
    )
    job_metadata.check_place(job(here), here)
    with pytest.raises(SpecError, match=r"the journal of s-1 is \S+/there, not \S+/here"):
        job_metadata.check_place(job(there), here)
