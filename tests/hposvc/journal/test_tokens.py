"""Tokens and sessions in the database."""

import pytest

from hposvc.journal.database import Store
from hposvc.journal.tokens import USED_EVERY_S, Tokens


@pytest.fixture
def tokens(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'hposvc.db'}")
    yield Tokens(store)
    store.close()


def test_a_revoked_token_stays_on_record_with_the_time_of_its_first_revocation(tokens):
    token, secret = tokens.create("ann", ["read"], None, "root", 0.0)
    assert tokens.revoke(token.id, 5.0)
    assert tokens.revoke(token.id, 6.0)
    assert tokens.find(secret, 7.0) is None
    (row,) = tokens.all()
    assert (row.revoked, row.state_at(7.0)) == (5.0, "revoked")
    assert not tokens.revoke("none", 8.0)


def test_the_last_use_is_recorded_to_the_minute(tokens):
    _, secret = tokens.create("ann", ["read"], None, "root", 0.0)
    used = []
    for now in (1.0, 2.0, 2.0 + USED_EVERY_S):
        tokens.find(secret, now)
        used.append(tokens.all()[0].used)
    assert used == [1.0, 1.0, 2.0 + USED_EVERY_S]


def test_sessions_that_have_ended_are_deleted_when_the_next_begins(tokens):
    token, _ = tokens.create("ann", ["read"], None, "root", 0.0)
    first = tokens.open_session(token, 10.0, 0.0)
    second = tokens.open_session(token, 30.0, 20.0)
    assert tokens.find_session(first, 5.0) is None
    assert tokens.find_session(second, 25.0).owner == "ann"
    tokens.end_session(second)
    assert tokens.find_session(second, 25.0) is None


def test_an_adopted_token_takes_the_place_of_the_one_before_and_stays_revoked(tokens):
    other, _ = tokens.create("ann", ["read"], None, "root", 0.0)
    for secret in ("first", "first", "second"):
        tokens.adopt(secret, "cluster", ["admin"], "the cluster", 1.0)
    assert tokens.find("first", 2.0) is None
    adopted = tokens.find("second", 2.0)
    assert adopted.scopes == ("admin",)
    assert {token.id for token in tokens.all()} == {other.id, adopted.id}
    tokens.revoke(adopted.id, 3.0)
    tokens.adopt("second", "cluster", ["admin"], "the cluster", 4.0)
    assert tokens.find("second", 5.0) is None
