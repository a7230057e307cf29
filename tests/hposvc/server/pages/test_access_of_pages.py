"""Pages obey tokens, scopes and projects, and a read-only server changes nothing."""

import re

import pytest
import recorded_home
from guarded import HOST, SPEC, bearer, call, config_of
from paged import HTML, client

from hposvc import api
from hposvc.events import Failed, Finished
from hposvc.server.app import create_app
from hposvc.server.service import Service
from hposvc.verbs.token import create_token

SITE = f"https://{HOST}"
PROJECTS = {"projects": {"vision": {"members": {"ann": ["steer", "submit"], "bob": ["read"]}}}}
BUTTON = re.compile(r'id="do-(\w+)"')


@pytest.fixture
def vision(sweeps):
    """The id of a sweep in the project vision."""
    return api.create(sweeps, api.validate({**SPEC, "project": "vision"}, {}), "vision-1").id


def log_in(browser, secret, wanted="/sweeps/vision-1"):
    form = {"token": secret, "next": wanted}
    headers = {"Origin": SITE, "Content-Type": "application/x-www-form-urlencoded"}
    return browser.post(f"{SITE}/login", data=form, headers=headers, follow_redirects=False)


def test_who_has_no_session_is_sent_to_the_login_and_from_there_back(sweeps, vision):
    browser = call(sweeps, config_of({}))
    refused = browser.get(f"{SITE}/sweeps/{vision}?sort=lr", headers=HTML, follow_redirects=False)
    assert refused.status_code == 303
    assert refused.headers["Location"] == f"/login?next=%2Fsweeps%2F{vision}%3Fsort%3Dlr"
    htmx = browser.get(f"{SITE}/", headers=HTML | {"HX-Request": "true"}, follow_redirects=False)
    assert htmx.status_code == 401
    assert htmx.headers["HX-Redirect"].startswith("/login")
    wrong = log_in(browser, "hpo_wrong")
    assert wrong.status_code == 401
    assert "unknown" in wrong.text
    secret = create_token(sweeps, "ann", ["read"], "1h").token
    answer = log_in(browser, secret)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/sweeps/{vision}")
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    page = browser.get(f"{SITE}/sweeps/{vision}", headers=HTML)
    csrf = re.search(r'name="csrf-token" content="(\w{64})"', page.text)
    assert csrf
    headers = {"X-CSRF-Token": csrf.group(1), "Origin": SITE}
    assert browser.post(f"{SITE}/api/v1/logout", headers=headers).status_code == 204


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil", "/login"])
def test_the_login_leads_to_no_other_site(sweeps, vision, wanted):
    secret = create_token(sweeps, "ann", ["read"], "1h").token
    answer = log_in(call(sweeps, config_of({})), secret, wanted)
    assert answer.headers["Location"] == "/"


def test_buttons_are_those_of_the_callers_scopes(sweeps, vision):
    browser = call(sweeps, config_of(PROJECTS))

    def buttons(owner, *scopes):
        headers = bearer(sweeps, owner, *scopes) | HTML
        page = browser.get(f"{SITE}/sweeps/{vision}", headers=headers)
        return page.status_code, set(BUTTON.findall(page.text))

    assert buttons("bob", "steer", "submit") == (200, set())
    assert buttons("ann", "read") == (200, set())
    assert buttons("ann", "read", "submit") == (200, {"fork"})
    assert buttons("ann", "steer") == (200, {"pause", "stop", "kill", "extend"})


def test_every_button_asks_first_and_calls_a_route_that_there_is(sweeps, vision):
    """With what each has to say: its effect, and whether its form can be sent as it is."""
    recorded_home.begin(sweeps, "vision-1")
    last = sweeps.journal.last("vision-1")
    failed = Failed(6.0, 1, "t0001", "user", "no luck")
    sweeps.journal.append("vision-1", last, [failed, Finished(7.0, "COMPLETED", "trials")])
    app = create_app(Service(sweeps))
    routes = {path for path, methods in app.openapi()["paths"].items() if "post" in methods}
    with client(sweeps) as served:
        page = served.get("/sweeps/vision-1").text
        page += served.get("/sweeps/vision-1/trials/t0001").text
    buttons = BUTTON.findall(page)
    assert buttons == ["extend", "retry", "fork", "retry", "exclude"]
    for verb in set(buttons):
        assert f'data-dialog="dialog-{verb}"' in page
        assert re.search(rf'id="effect-{verb}" class="muted">[A-Z].+\.</p>', page)
    for url in re.findall(r'data-action="([^"]+)"', page):
        path = url.replace("vision-1", "{id}").replace("t0001", "{t}")
        assert path in routes, path


def test_who_may_not_see_a_sweep_gets_404_on_every_page_and_no_row(sweeps, vision):
    browser = call(sweeps, config_of(PROJECTS))
    headers = bearer(sweeps, "eve", "steer", "submit") | HTML
    charts = ("/charts", "/charts/best", "/charts/best/data", "/trend.svg")
    for path in ("", *charts, "/findings", "/trials/t0001"):
        answer = browser.get(f"{SITE}/sweeps/{vision}{path}", headers=headers)
        assert answer.status_code == 404, path
    assert browser.get(f"{SITE}/compare?ids={vision}", headers=headers).status_code == 404
    assert vision not in browser.get(f"{SITE}/", headers=headers).text
    assert vision in browser.get(f"{SITE}/", headers=bearer(sweeps, "bob", "read") | HTML).text


def test_a_read_only_server_refuses_every_change_and_shows_no_button(sweeps, vision):
    with client(sweeps, read_only=True) as served:
        for method, path in (
            ("POST", f"/api/v1/sweeps/{vision}/stop"),
            ("POST", "/api/v1/sweeps"),
            ("DELETE", f"/api/v1/sweeps/{vision}"),
            ("POST", "/api/v1/tokens"),
            ("PUT", "/api/v1/archives/" + "0" * 64),
        ):
            answer = served.request(method, path, headers={"Accept": "application/json"})
            assert answer.status_code == 403, path
            assert "read-only" in answer.json()["errors"][0]["message"]
        page = served.get(f"/sweeps/{vision}")
        assert page.status_code == 200
        assert not BUTTON.findall(page.text)
        assert "read-only" in page.text
