"""Pages in Chromium: what people do, live changes, and what axe-core finds."""

import threading

import charted_sweeps
import pytest
import recorded_home
import uvicorn
from browser import DESKTOP, PHONE
from waiting import until

from hposvc import api
from hposvc.events import Decided, Reported
from hposvc.server.app import create_app
from hposvc.server.config import Config
from hposvc.server.service import Listening, Service
from hposvc.server.serving import _listen
from hposvc.verbs.token import create_token

pytestmark = pytest.mark.long
ADDRESSES = (
    *("/", "/sweeps/ended", "/sweeps/front", "/sweeps/cut-off", "/sweeps/ended/trials/t0001"),
    "/compare?ids=ended,paused",
)


def serve(sweeps, config=None):
    """Yield the address of a server of the sweeps, which starts no drivers."""
    listening = Listening("127.0.0.1", 0)
    listener = _listen(listening)
    port = listener.getsockname()[1]
    service = Service(sweeps, None, config or Config(), Listening("127.0.0.1", port))
    server = uvicorn.Server(
        uvicorn.Config(create_app(service), log_level="warning", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture(scope="module")
def address(recorded):
    yield from serve(recorded)


@pytest.fixture
def live(sweeps):
    """A home with a sweep whose trial runs, and the address of its server."""
    recorded_home.cut_off(sweeps, "s")
    yield from ((sweeps, address) for address in serve(sweeps))


def test_from_the_list_to_a_sweep_to_a_trial(address, open_tab):
    tab = open_tab(address)
    tab.page.locator("a[href='/sweeps/ended']").click()
    tab.page.locator("#trials tbody a").first.click()
    tab.page.locator("#decisions tbody tr").first.wait_for()
    for width, height in (DESKTOP, PHONE):  # a picture for each, which is not cut off
        tab.page.set_viewport_size({"width": width, "height": height})
        shown = tab.page.locator("#curve .still:visible")
        assert shown.locator("svg").count() == 1
        assert shown.evaluate("each => each.scrollWidth <= each.clientWidth")
    assert not tab.errors
    assert not tab.requests


def test_the_table_is_sorted_and_filtered_in_place(address, open_tab):
    tab = open_tab(f"{address}/sweeps/ended")
    tab.page.locator("#sort-step").click()
    tab.page.wait_for_url("**?sort=step")
    tab.page.locator("th[aria-sort=ascending] #sort-step").wait_for()
    tab.page.locator("#where").fill("state=COMPLETED")
    tab.page.locator("#trials [data-state=STOPPED]").first.wait_for(state="detached")
    assert "where=state" in tab.page.url
    assert not tab.errors


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.full)])
def test_axe_has_no_serious_finding_and_a_phone_scrolls_in_one_direction(address, open_tab, theme):
    for path in ADDRESSES:
        tab = open_tab(f"{address}{path}", theme=theme, size=PHONE)
        assert not tab.axe(), path
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE[0], path
        assert not tab.errors


def test_the_smallest_phone_shows_whole_pages_and_all_links_of_the_bar(sweeps, tmp_path, open_tab):
    spec, events = charted_sweeps.sweep("asha", tmp_path)
    api.create(sweeps, spec, "asha")
    sweeps.journal.append("asha", sweeps.journal.last("asha"), events)
    secret = create_token(sweeps, "ann", ["steer"], "1h").token
    for address in serve(sweeps, Config(loopback="token")):
        tab = open_tab(f"{address}/sweeps/asha", size=(360, 740))
        tab.page.locator("#token").fill(secret)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url("**/sweeps/asha")
        tab.page.locator("[data-logout]").wait_for()
        tab.page.locator("#chart-importance").scroll_into_view_if_needed()
        drawn = tab.page.locator("#chart-importance svg:visible")
        drawn.wait_for(timeout=60_000)  # models are fitted
        assert drawn.evaluate("each => each.clientWidth <= each.closest('.still').clientWidth")
        assert tab.page.title() == "asha · sweep · hposvc"  # that of no chart which came late
        for path in ("/sweeps/asha", "/", "/sweeps/asha/trials/t0001"):
            tab.page.goto(f"{address}{path}")
            assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            cut = "nav => nav.scrollWidth > nav.clientWidth"
            assert not tab.page.locator(".bar nav").evaluate(cut), path


def test_charts_of_a_page_fill_their_cards_and_are_mounted_once(address, open_tab):
    tab = open_tab(f"{address}/sweeps/ended", size=(1600, 900))
    sizes = set()
    for kind in ("best", "parallel", "timeline"):
        tab.page.evaluate("id => document.getElementById(id).scrollIntoView()", f"chart-{kind}")
        figure = tab.page.locator(f"#chart-{kind}[data-ready]")
        figure.wait_for(timeout=60_000)
        assert figure.locator(":scope > .tools").count() == 1  # though several events bring it
        for part in (".still", "svg[role]:visible"):
            sizes.add(figure.locator(part).evaluate("each => each.clientWidth"))
    assert len(sizes) == 1
    assert not tab.errors


def test_a_page_follows_its_sweep(live, open_tab):
    sweeps, address = live
    tab = open_tab(f"{address}/sweeps/s")
    tab.page.locator("#chart-best[data-ready]").scroll_into_view_if_needed()
    seq = sweeps.journal.last("s")
    sweeps.journal.append("s", seq, [Reported(99.0, 1, "t0001", 5, {"loss": 0.0625})])
    tab.page.locator("#overview .best-value", has_text="0.0625").wait_for()
    tab.page.locator("#trials td", has_text="0.0625").wait_for()
    assert "0.0625" in tab.page.locator("#notice").text_content()
    tab.page.locator("#chart-best figcaption", has_text="0.0625").wait_for()
    assert not tab.errors


def test_decisions_about_a_running_trial_come_by_themselves(live, open_tab):
    sweeps, address = live
    tab = open_tab(f"{address}/sweeps/s")
    tab.page.clock.install()
    tab.page.goto(f"{address}/sweeps/s/trials/t0001")
    tab.page.locator("#logged", has_text="no run in MLflow").wait_for()
    tab.page.locator("#decisions tbody tr").first.wait_for()
    seq = sweeps.journal.last("s")
    sweeps.journal.append("s", seq, [Decided(99.0, "t0001", 1, 1, "stop", "rung")])
    tab.page.locator(f"#overview[data-seq='{seq + 1}']").wait_for()
    tab.page.clock.fast_forward(60_000)
    tab.page.locator("#decisions th", has_text="stopped").wait_for()
    assert not tab.errors


def test_stop_asks_first_and_escape_takes_it_back(live, open_tab):
    sweeps, address = live
    service = Service(sweeps)
    tab = open_tab(f"{address}/sweeps/s")
    tab.page.locator("#do-stop").click()
    assert tab.page.locator("#dialog-stop").is_visible()
    assert tab.page.evaluate("document.activeElement.textContent") == "Cancel"
    tab.page.keyboard.press("Escape")
    assert not tab.page.locator("#dialog-stop").is_visible()
    assert not service.operations.newest("s")
    tab.page.locator("#do-stop").click()
    tab.page.locator("#dialog-stop button[type=submit]").click()
    until(lambda: [each.verb for each in service.operations.newest("s")] == ["stop"], "stop asked")


def test_a_person_logs_in_and_out(sweeps, open_tab):
    recorded_home.cut_off(sweeps, "s")
    secret = create_token(sweeps, "ann", ["steer"], "1h").token
    for address in serve(sweeps, Config(loopback="token")):
        tab = open_tab(f"{address}/sweeps/s")
        assert not tab.axe()
        tab.page.locator("#token").fill(secret)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url("**/sweeps/s")
        assert tab.page.locator("#do-stop").is_visible()
        tab.page.locator("[data-logout]").click()
        tab.page.wait_for_url("**/login")
        tab.page.goto(f"{address}/sweeps/s")
        assert "/login" in tab.page.url
