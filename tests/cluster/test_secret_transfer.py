"""A secret payload is taken once; the cluster's store is a dict here."""

import pytest

from cluster import secret_transfer
from cluster.jobs import SEAL
from cluster.secret_transfer import PayloadGone, take


@pytest.fixture
def store(monkeypatch):
    content = {b"gcs://payload": SEAL + b"secrets", b"gcs://other": SEAL + b"theirs"}

    class Client:
        def __init__(self, address):
            assert address == "10.0.0.7:6379"

        def internal_kv_get(self, key, namespace):
            return content.get(key)

        def internal_kv_del(self, key, by_prefix, namespace):
            assert not by_prefix
            del content[key]

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    monkeypatch.setattr(secret_transfer, "GcsClient", Client)
    return content


def test_a_payload_can_be_taken_once(store):
    assert take("payload") == b"secrets"
    assert [*store] == [b"gcs://other"]
    with pytest.raises(PayloadGone, match="submit the sweep again"):
        take("payload")
