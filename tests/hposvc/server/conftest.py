"""A home for the tests of the server."""

import pytest

from hposvc import api


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "HPOSVC_CONFIG", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    opened = api.Sweeps.open(tmp_path / "home")
    yield opened
    opened.journal.store.close()
