"""A journal for simulated sweeps."""

import pytest

from hposvc.journal.database import Store
from hposvc.journal.journal import Journal


@pytest.fixture
def journal(tmp_path):
    journal = Journal(Store(f"sqlite:///{tmp_path / 'journal.db'}"))
    yield journal
    journal.store.close()
