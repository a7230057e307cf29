"""A job on a cluster: its checks before it drives, and its redacted output of user code."""

import pytest
from simulated_sweeps import make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.errors import OutOfReach, SpecError
from hposvc.remote.job_entrypoint import _check_proof, prepare
from hposvc.remote.job_payload import JobPayload, StoreLocations


def test_a_job_deletes_the_proofs_that_it_has_seen_since_its_sender_may_be_gone(tmp_path):
    (proof,) = StoreLocations(None, {}, {"journal": tmp_path}).write_probes()
    _check_proof(proof)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutOfReach, match=r"journal: it is in .* of the submitting machine"):
        _check_proof(proof)


@pytest.mark.parametrize("name", ["last", "bef"])
def test_a_sweep_that_comes_twice_is_the_same_though_its_earlier_one_has_another_name(
    tmp_path, name
):
    """A second submit must attach: by then `last` is the sweep itself, and `bef` is ambiguous."""
    home = tmp_path / "home"
    sweeps = api.Sweeps.open(home)
    api.create(sweeps, make_spec(), "before")

    def payload(top: int) -> JobPayload:
        spec = make_spec(warm_start={"from": name, "top": top})
        return JobPayload("after", str(home), spec=specs.dump(spec))

    _, first = prepare(payload(3))
    api.create(sweeps, make_spec(), "before-2")
    assert prepare(payload(3))[1] == first
    assert first.spec["warm_start"] == {"from": ["before"], "top": 3}
    with pytest.raises(SpecError, match="there is a sweep after with another spec"):
        prepare(payload(4))
