"""What a job on a cluster tells of the user's code."""

import os

import pytest

from hposvc.backends.backend import OutOfReach
from hposvc.reading.problems import SpecError, fail
from hposvc.remote.arrival import _check_proof as receive_proof
from hposvc.remote.arrival import discreet
from hposvc.remote.parcel import Whereabouts

SECRET = "hunter-22-never-seen"


def test_neither_output_nor_errors_of_the_check_hold_a_secret(capfd):
    def check() -> None:
        os.write(1, f"logging in with {SECRET}\n".encode())
        raise fail(f"no access with {SECRET}", "trainable") from ValueError(SECRET)

    wanted = r"^trainable: no access with \[secret\]$"
    with pytest.raises(SpecError, match=wanted) as told, discreet([SECRET]):
        check()
    assert told.value.__cause__ is None
    out, err = capfd.readouterr()
    assert (out, err) == ("", "logging in with [secret]\n")


def test_a_job_deletes_the_proofs_that_it_has_seen_since_its_sender_may_be_gone(tmp_path):
    (proof,) = Whereabouts(None, {}, {"journal": tmp_path}).prove()
    receive_proof(proof)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutOfReach, match=r"journal: it is in .* of the submitting machine"):
        receive_proof(proof)
