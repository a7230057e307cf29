"""Reports in HTML: what they hold, what browsers make of them, and what readers can do."""

import re

import odd_sweeps
import pytest
from browser import PHONE

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis.forecast import kept
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.chart import Chart, packed
from hposvc.reporting.charts import draw_for_screens
from hposvc.reporting.document import Section, html

ONE_PANEL = ("best", "parallel", "curves")

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return odd_sweeps.record(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def file_of(sweeps, tmp_path_factory):
    """Return a function that writes the report of sweeps, once, and returns the file."""
    folder = tmp_path_factory.mktemp("reports")

    def write(*names):
        file = folder / f"{'-'.join(names)}.html"
        if not file.exists():
            sections = [Section.read(OpenSweep(sweeps, name)) for name in names]
            file.write_text(html(sections))
        return file

    return write


def test_a_report_names_the_best_trial_and_how_to_get_it_again(sweeps, file_of):
    text = file_of("plain").read_text()
    best = api.load(sweeps, "plain").front()[0]
    assert f"{best.value:.5g}" in text
    assert f"hposvc repro plain {best.trial}" in text
    assert "parameters:" in text  # of the spec


def test_a_report_asks_for_nothing_outside_its_file(file_of):
    page = re.sub(r"<script>.*?</script>", "", file_of("plain").read_text(), flags=re.S)
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#|data:)[\w/.:]+""", page)


def test_no_text_of_a_trial_ends_an_element(sweeps, file_of):
    failed = api.load(sweeps, "failed").trials()[0]
    assert odd_sweeps.NASTY in failed.detail
    assert "<script>alert" not in file_of("failed").read_text()
    assert "<script>alert" not in packed({"text": odd_sweeps.NASTY})


@pytest.mark.parametrize("name", odd_sweeps.SPECS)
def test_every_sweep_opens_without_an_error(name, file_of, open_tab):
    tab = open_tab(file_of(name))
    tab.scroll_through()
    assert not tab.errors
    assert not tab.requests
    assert tab.page.locator("h1").inner_text().startswith(name)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(theme, file_of, open_tab):
    tab = open_tab(file_of("conditional"), theme=theme)
    tab.scroll_through()
    assert not tab.axe()


def test_a_phone_needs_no_sideways_scrolling_of_the_page(file_of, open_tab):
    for name in ("conditional", "front"):
        tab = open_tab(file_of(name), PHONE)
        tab.scroll_through()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    whole = "each => each.clientWidth <= each.closest('.still').clientWidth"
    tab = open_tab(file_of("conditional"), PHONE)
    assert tab.page.locator("[data-chart=importance] svg:visible").evaluate(whole)


def test_pictures_of_a_page_fill_their_cards_and_those_of_one_panel_are_equally_high(
    file_of, open_tab
):
    page = open_tab(file_of("conditional")).page
    size = "each => [each.clientWidth, each.clientHeight]"
    pictures = page.locator(".chart .still svg[role]:visible").all()
    assert len({picture.evaluate(size)[0] for picture in pictures}) == 1
    room = page.locator(".chart .still").first.evaluate("each => each.clientWidth")
    assert pictures[0].evaluate(size)[0] == room
    alone = [page.locator(f"[data-chart={kind}] svg[role]:visible") for kind in ONE_PANEL]
    assert len({picture.first.evaluate(size)[1] for picture in alone}) == 1


def test_other_views_of_a_chart_come_at_a_button_and_keep_what_is_pinned(file_of, open_tab):
    tab = open_tab(file_of("plain"))
    tab.scroll_through()
    figure = tab.page.locator("figure[data-chart=best]")
    label = figure.locator("svg[role]:visible").get_attribute("aria-label")
    assert label.endswith("against trials begun")
    figure.get_by_role("button", name="By time").click()
    label = figure.locator("svg[role]:visible").get_attribute("aria-label")
    assert "since the start" in label
    figure.get_by_role("button", name="By trials").click()
    figure.get_by_role("application").focus()
    tab.page.keyboard.press("End")
    tab.page.keyboard.press("Enter")
    figure.get_by_role("button", name="By time").click()
    assert figure.locator(".pinned .card").count() == 1
    assert figure.locator("svg .lit").count() == 1
    assert not tab.errors


def test_without_scripts_pictures_and_the_best_trials_are_there(file_of, open_tab, sweeps):
    page = open_tab(file_of("plain"), scripts=False).page
    assert page.locator("figure[data-chart=best] svg").first.is_visible()
    best = api.load(sweeps, "plain").front()[0].trial
    assert page.locator("figure[data-chart=trials] tbody tr").first.inner_text().startswith(best)


def test_the_table_sorts_filters_and_marks_the_best(file_of, open_tab, sweeps):
    page = open_tab(file_of("plain")).page
    figure = page.locator("figure[data-chart=trials]")
    figure.scroll_into_view_if_needed()
    rows = figure.locator(".moving tbody tr")
    best = api.load(sweeps, "plain").front()[0].trial
    assert rows.first.inner_text().startswith(best)
    figure.get_by_role("button", name="trial", exact=True).click()
    assert rows.first.inner_text().startswith("t0001")
    figure.get_by_role("searchbox").fill(best)
    assert rows.count() == 1
    assert "is-best" in rows.first.get_attribute("class")


def test_a_curve_says_its_decisions_when_pointed_at_and_stays_when_clicked(file_of, open_tab):
    page = open_tab(file_of("conditional")).page
    figure = page.locator("figure[data-chart=curves]")
    figure.scroll_into_view_if_needed()
    ends = figure.locator(".wide-only g circle")  # of trials that were stopped, and of the best
    tip = figure.locator(".tip")
    for end in ends.all():
        box = end.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        if tip.is_visible() and "stop" in tip.inner_text():
            break
    said = tip.inner_text()
    assert "rank" in said
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    pinned = figure.locator(".pinned .card")
    assert said in pinned.inner_text()
    pinned.get_by_role("button").click()
    assert pinned.count() == 0


def test_curves_are_walked_by_keys_from_the_best_on(file_of, open_tab, sweeps):
    page = open_tab(file_of("conditional")).page
    figure = page.locator("figure[data-chart=curves]")
    figure.scroll_into_view_if_needed()
    figure.get_by_role("application", name="Learning curves and cuts").focus()
    page.keyboard.press("ArrowDown")
    best = api.load(sweeps, "conditional").front()[0].trial
    assert figure.locator("[aria-live]").inner_text().startswith(best)
    page.keyboard.press("Enter")
    assert best in figure.locator(".pinned").inner_text()


PARALLEL = {
    "metric": "loss",
    "goal": "minimize",
    "best": "t0003",
    "of": 4,
    "axes": [
        {"name": "lr", "scale": "log", "low": 1e-4, "high": 1e-1, "categories": []},
        {
            "name": "optimizer",
            "scale": "category",
            "low": None,
            "high": None,
            "categories": ["sgd", "adam"],
        },
        {"name": "momentum", "scale": "linear", "low": 0.5, "high": 1.0, "categories": []},
        {"name": "loss", "scale": "linear", "low": 0.1, "high": 0.9, "categories": []},
    ],
    "columns": [
        [1e-4, 1e-3, 1e-2, 1e-1],
        ["sgd", "sgd", "adam", "adam"],
        [0.5, 1.0, None, None],  # only sgd has one
        [0.9, 0.5, 0.1, None],  # the last trial has no result
    ],
    "trial": ["t0001", "t0002", "t0003", "t0004"],
    "rank": [0.33, 0.67, 1.0, 0.0],
}


@pytest.fixture
def parallel(open_tab, file_of, tmp_path):
    """A page with parallel coordinates of four trials."""
    picture = draw_for_screens(Chart("parallel", "Parameters", "", PARALLEL))
    figure = f"""<figure data-chart="parallel"><figcaption><h3>Parameters</h3></figcaption>
        <div class="still" tabindex="0">{picture}</div></figure>"""
    file = tmp_path / "page.html"
    file.write_text(file_of("empty").read_text().replace("</main>", f"{figure}</main>"))
    tab = open_tab(file)
    tab.page.locator("figure[data-chart=parallel]").scroll_into_view_if_needed()
    return tab


def test_axes_are_brushed_with_the_mouse_and_a_click_selects_all_again(parallel):
    page = parallel.page
    said = page.locator("[data-chart=parallel] [role=status]")
    assert said.inner_text() == "4 trials"
    boxes = [strip.bounding_box() for strip in page.locator(".strip").all()]

    def drag(axis, low, high):
        x = boxes[axis]["x"] + boxes[axis]["width"] / 2
        y, height = boxes[axis]["y"], boxes[axis]["height"]
        page.mouse.move(x, y + (1 - low) * height)
        page.mouse.down()
        page.mouse.move(x, y + (1 - high) * height)
        page.mouse.up()

    drag(0, 0.2, 0.8)
    expect(said).to_have_text("2 of 4 trials selected")
    drag(1, 0.6, 0.95)  # adam
    expect(said).to_have_text("1 of 4 trials selected")
    drag(2, 0.05, 0.9)  # none of them has a momentum
    expect(said).to_have_text("0 of 4 trials selected")
    drag(2, 0.5, 0.5)
    expect(said).to_have_text("1 of 4 trials selected")
    page.get_by_role("button", name="Clear selection").click()
    expect(said).to_have_text("4 trials")
    assert not parallel.errors


def test_several_sweeps_have_a_comparison_and_a_section_each(file_of, open_tab):
    tab = open_tab(file_of("plain", "one"))
    tab.scroll_through()
    rows = tab.page.locator("#comparison tbody tr")
    assert [row.split()[0] for row in rows.all_inner_texts()] == ["plain", "one"] * 2
    assert "At equal cost" in tab.page.locator("#comparison p").first.inner_text()
    assert tab.page.locator("#comparison .still svg[role]").count() == 1
    assert tab.page.locator("[data-sweep]").count() == 2
    assert not tab.errors


def test_a_report_says_how_good_the_forecast_was(sweeps):
    row = api.load(sweeps, "plain").row
    wall_s = {"expected": 2.0, "low": 1.0, "high": 3.0, "confidence": 0.9}
    plan = {**dict.fromkeys(kept.FIGURES), "wall_s": wall_s, "source": {"origin": "pilot"}}
    kept.keep(sweeps.home, specs.restore(row.spec), plan, now=row.created - 1)
    section = Section.read(OpenSweep(sweeps, "plain"), sweeps.home)
    (time,) = [figure for figure in section.figures if figure.name == "Time"]
    assert time.note == "forecast 2s, outside 1s to 3s"
    assert section.json()["forecast"]["figures"][0]["held"] is False
