"""`hposvc token`, as its user sees it; what tokens are good for is tested with the server."""


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(hposvc):
    answer = hposvc("token", "create", "--owner", "ann", "--scope", "read", "--scope", "submit")
    assert answer.code == 0
    secret = answer.out.strip()
    assert secret.startswith("hpo_")
    listed = hposvc("token", "list", "-o", "json")
    assert secret not in listed.out
    (row,) = listed.data
    assert (row["owner"], row["scopes"], row["state"]) == ("ann", ["read", "submit"], "valid")
    assert abs(row["expires"] - row["created"] - 90 * 86400) < 1
    assert row["id"] in answer.err
    assert row["id"] in hposvc("token", "list").out
    assert hposvc("token", "revoke", row["id"]).code == 0
    assert hposvc("token", "list", "-o", "json").data[0]["state"] == "revoked"


def test_what_can_be_no_token_exits_with_what_is_allowed(hposvc):
    wrong = hposvc("token", "create", "--owner", "ann", "--scope", "raed")
    assert wrong.code == 2
    assert "did you mean 'read'" in wrong.err
    soon = hposvc("token", "create", "--owner", "ann", "--scope", "read", "--expires", "soon")
    assert (soon.code, "never" in soon.err) == (2, True)
    assert hposvc("token", "create", "--owner", "a", "--scope", "agent:none").code == 4
    assert hposvc("token", "revoke", "none").code == 4
    assert hposvc("token", "list", "-o", "json").data == []
