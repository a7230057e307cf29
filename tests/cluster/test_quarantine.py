"""If these fail, sweeps continue to use a broken node, or never use a repaired one again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import quarantine


def test_a_node_is_held_until_it_is_lifted(tmp_path):
    assert quarantine.held(tmp_path) == {}
    quarantine.hold(tmp_path, "node-1", "its fan is broken")
    quarantine.hold(tmp_path, "10.0.0.2", "slow")
    assert quarantine.held(tmp_path) == {"10.0.0.2": "slow", "node-1": "its fan is broken"}
    quarantine.lift(tmp_path, "node-1")
    assert quarantine.held(tmp_path) == {"10.0.0.2": "slow"}


def test_the_last_reason_counts(tmp_path):
    quarantine.hold(tmp_path, "node-1", "slow")
    quarantine.hold(tmp_path, "node-1", "mended tomorrow")
    assert quarantine.held(tmp_path) == {"node-1": "mended tomorrow"}


def test_to_lift_what_is_not_held_is_told(tmp_path):
    quarantine.hold(tmp_path, "node-2", "slow")
    with pytest.raises(quarantine.NotHeld, match="node-1: it is not held; held are: node-2"):
        quarantine.lift(tmp_path, "node-1")


@given(st.text(max_size=8).filter(lambda text: not quarantine.NAME.fullmatch(text)))
def test_what_is_no_name_never_becomes_a_path(text):
    with pytest.raises(quarantine.BadName):
        quarantine._file(quarantine.Path("home"), text)


def test_a_half_written_file_is_never_seen(tmp_path):
    (tmp_path / quarantine.FOLDER).mkdir()
    (tmp_path / quarantine.FOLDER / "tmp123").write_text('{"node"')
    assert quarantine.held(tmp_path) == {}
