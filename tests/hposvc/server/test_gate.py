"""What every request passes before a route sees it."""

import re

import anyio
import pytest
from guarded import ELSEWHERE, HERE, HOST, bearer, call, code, config_of

from hposvc.errors import Unanswered
from hposvc.journal.tokens import Tokens
from hposvc.server.problems import ApiError
from hposvc.server.rates import Rates

FOREIGN_HOSTS = [
    "evil.example",
    "127.0.0.1.evil.example",
    "",
    "localhost@evil",
    "[::1]evil",
    "[::1",
    "[]",
    "localhost:80:80",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_403_so_rebinding_a_name_to_this_address_gains_nothing(sweeps, host):
    client = call(sweeps, config_of({}), HERE, "127.0.0.1")
    assert code(client.get("/me", headers={"Host": host})) == (403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8900", "[::1]:8900", "127.0.0.1"])
def test_the_names_of_this_machine_are_ours_on_loopback_alone(sweeps, host):
    client = call(sweeps, config_of({}), HERE, "127.0.0.1")
    assert client.get("/me", headers={"Host": host}).is_success
    public = call(sweeps, config_of({}))
    header = bearer(sweeps, "ann", "read") | {"Host": host}
    assert code(public.get("/me", headers=header)) == (403, "forbidden")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"https://{HOST}.evil.example", f"chrome-extension://{HOST}"]
)
def test_another_sites_page_is_refused_whatever_it_asks(sweeps, origin):
    client = call(sweeps, config_of({}))
    header = bearer(sweeps, "ann", "admin") | {"Origin": origin}
    assert code(client.get("/me", headers=header)) == (403, "forbidden")
    assert code(client.post("/login", headers=header, json={"token": "x"})) == (403, "forbidden")
    own = header | {"Origin": f"https://{HOST}"}
    assert client.get("/me", headers=own).is_success


def test_a_page_elsewhere_cannot_embed_answers_but_a_link_may_lead_here(sweeps):
    client = call(sweeps, config_of({}), HERE, "127.0.0.1")
    embeds = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert code(client.get("/me", headers=embeds)) == (403, "forbidden")
    assert client.get("/me", headers={**embeds, "Sec-Fetch-Mode": "navigate"}).is_success


def test_a_body_beyond_the_limit_is_413_with_and_without_a_length(sweeps):
    client = call(sweeps, config_of({"requests": {"body": 100}}))
    header = bearer(sweeps, "ann", "submit")
    assert client.post("/probe", headers=header, json={"a": "b" * 50}).is_success
    large = {"a": "b" * 100}
    assert code(client.post("/probe", headers=header, json=large)) == (413, "too_large")
    chunks = (b"{" + b" " * 60, b" " * 60, b"}")
    header["Content-Type"] = "application/json"
    chunked = client.post("/probe", headers=header, content=iter(chunks))
    assert code(chunked) == (413, "too_large")
    assert "Content-Length" not in chunked.request.headers


def test_a_body_is_not_read_before_its_sender_is_known(sweeps):
    moves = []

    async def receive():
        moves.append("read")
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        moves.append(message.get("status"))

    scope = {"type": "http", "method": "POST", "path": "/api/v1/probe", "query_string": b""}
    scope |= {"headers": [(b"host", HOST.encode())], "client": (ELSEWHERE, 1), "scheme": "https"}
    anyio.run(call(sweeps, config_of({})).app, scope, receive, send)
    assert moves == [401, None]


def test_a_long_url_and_long_headers_are_refused(sweeps):
    client = call(sweeps, config_of({}))
    header = bearer(sweeps, "ann", "read")
    assert code(client.get("/me", headers=header, params={"a": "b" * 9000})) == (414, "too_large")
    assert code(client.get("/me", headers=header | {"X": "b" * 40_000})) == (431, "too_large")


def test_rates_hold_per_owner_and_per_address_and_say_when_to_ask_again(sweeps):
    client = call(sweeps, config_of({"requests": {"per_owner": "3/hour"}}))
    first, second = bearer(sweeps, "ann", "read"), bearer(sweeps, "ann", "read")
    for header in (first, second, first):
        assert client.get("/me", headers=header).is_success
    refused = client.get("/me", headers=second)
    assert code(refused) == (429, "rate_limited")
    assert 0 < int(refused.headers["Retry-After"]) <= 3600
    assert client.get("/me", headers=bearer(sweeps, "bob", "read")).is_success
    client = call(sweeps, config_of({"requests": {"per_address": "2/hour"}}))
    for owner in ("ann", "bob"):
        assert client.get("/me", headers=bearer(sweeps, owner, "read")).is_success
    assert code(client.get("/healthz")) == (429, "rate_limited")


def test_all_addresses_of_an_ipv6_host_are_one_caller():
    rates = Rates(config_of({"requests": {"per_address": "2/hour"}}).requests)
    rates.count_address("2001:db8::1")
    rates.count_address("2001:db8::2:3")
    with pytest.raises(ApiError):
        rates.count_address("2001:db8::ffff")
    rates.count_address("2001:db8:0:1::1")


def test_wrong_tokens_are_few_and_do_not_lock_out_right_ones(sweeps):
    client = call(sweeps, config_of({"requests": {"wrong_tokens": "3/hour"}}))
    wrong = {"Authorization": "Bearer hpo_guess"}
    statuses = [client.get("/me", headers=wrong).status_code for _ in range(3)]
    assert statuses == [401, 401, 401]
    assert code(client.get("/me", headers=wrong)) == (429, "rate_limited")
    assert code(client.post("/login", json={"token": "hpo_guess"})) == (429, "rate_limited")
    assert client.get("/me", headers=bearer(sweeps, "ann", "read")).is_success


def test_a_caller_on_this_machine_has_no_rate(sweeps):
    limits = config_of({"requests": {"per_owner": "1/hour", "per_address": "1/hour"}})
    client = call(sweeps, limits, HERE, "127.0.0.1")
    assert all(client.get("/me").is_success for _ in range(3))


def test_every_response_forbids_what_a_browser_could_do_with_it(sweeps):
    client = call(sweeps, config_of({}))
    for path in ("/me", "/none", "https://evil.example/healthz"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert "max-age" in headers["Strict-Transport-Security"]
        assert "Access-Control-Allow-Origin" not in headers


def test_health_and_the_schema_are_for_everybody_and_load_nothing_from_elsewhere(sweeps):
    client = call(sweeps, config_of({}))
    assert client.get(f"https://{HOST}/healthz").is_success
    assert client.get(f"https://{HOST}/openapi.json").json()["openapi"].startswith("3.1")
    page = client.get(f"https://{HOST}/docs")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "/api/v1/sweeps" in page.text
    assert not re.search("<script|<link|src=|https?:", page.text)
    assert code(client.get(f"https://{HOST}/redoc")) == (401, "unauthorized")
    assert code(client.get(f"https://{HOST}/metrics")) == (401, "unauthorized")


def test_a_journal_that_does_not_answer_for_a_token_is_503(sweeps, monkeypatch):
    header = bearer(sweeps, "ann", "read")

    def away(tokens, secret, now):
        raise Unanswered("journal sqlite:///x: disk I/O error")

    monkeypatch.setattr(Tokens, "find", away)
    refused = call(sweeps, config_of({})).get("/me", headers=header)
    assert code(refused) == (503, "store_out_of_reach")
    assert "Retry-After" in refused.headers
    assert refused.headers["X-Content-Type-Options"] == "nosniff"


def test_an_upload_that_breaks_off_is_no_bug(sweeps):
    coming = iter(
        [{"type": "http.request", "body": b"PK", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive():
        return next(coming)

    async def send(message):
        raise AssertionError("nobody listens any more")

    header = bearer(sweeps, "ann", "submit")["Authorization"].encode()
    path = f"/api/v1/archives/{'0' * 64}"
    scope = {"type": "http", "method": "PUT", "path": path, "query_string": b"", "scheme": "https"}
    scope |= {"headers": [(b"host", HOST.encode()), (b"authorization", header)]}
    scope |= {"client": (ELSEWHERE, 1)}
    anyio.run(call(sweeps, config_of({})).app, scope, receive, send)
    assert next(coming, None) is None
    assert not (sweeps.home.path / "errors").exists()
