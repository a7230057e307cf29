"""The payload of a job: places of journal and tracker, and no password in any repr."""

import os
from pathlib import Path

from simulated_sweeps import make_spec

from hposvc.journal.home import Home
from hposvc.remote.job_payload import DriverPayload, ServerPayload, SharedFolderProbe, locate

SPEC = make_spec(engine=None, trainable="somewhere:train")
PASSWORD = "hunter22"
SERVERS = {
    "HPOSVC_DB": f"postgresql+psycopg://me:{PASSWORD}@db/x",
    "MLFLOW_TRACKING_URI": f"https://me:{PASSWORD}@mlflow",
    "MLFLOW_TRACKING_TOKEN": PASSWORD,
}


def test_what_is_in_the_home_must_be_proved(tmp_path: Path):
    where = locate(Home.of(tmp_path, {}), SPEC, {})
    assert where.home == str(tmp_path)
    assert where.folders == {"journal": tmp_path, "tracker": tmp_path}
    proofs = where.write_probes()
    assert [Path(proof.file).read_text() for proof in proofs] == [probe.word for probe in proofs]
    proofs[0].delete()
    proofs[0].delete()
    os.utime(proofs[1].file, (1, 1))  # as old as the probe of a job that never started
    for proof in where.write_probes():
        proof.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_payload_comes_out_as_it_was_packed_and_shows_no_secret():
    proofs = (SharedFolderProbe("journal", "/x", "word"),)
    driver = DriverPayload("s", "/home", {"A": "b"}, {"name": "s"}, (".",), proofs, {"S": PASSWORD})
    server = ServerPayload(1, PASSWORD, "PEM", PASSWORD, proofs, SERVERS, SERVERS)
    for payload in (driver, server):
        assert type(payload).unpack(payload.pack()) == payload
        assert PASSWORD not in repr(payload)
    assert PASSWORD not in repr(locate(Home.of(Path("/x"), SERVERS), SPEC, SERVERS))


def test_a_job_deletes_the_probes_that_it_has_seen_since_its_sender_may_be_gone(tmp_path: Path):
    probe = SharedFolderProbe.write("journal", tmp_path)
    assert probe.seen()
    assert list(tmp_path.iterdir()) == []
    assert not probe.seen()
