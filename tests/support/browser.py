"""The system's Chromium, driven by Playwright, without any network but what a test allows.

axe_core/ has axe-core, which finds what people with a keyboard or a screen reader can't use.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).with_name("axe_core") / "axe.min.js"
DESKTOP, PHONE = (1280, 900), (390, 844)
WAIT_MS = 15_000
GRAVE = ("serious", "critical")


@contextmanager
def start() -> "Iterator[Browser]":
    """Start the browser; skip the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(PROGRAMS)} is installed: apt-get install chromium")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page in the browser, and what went wrong in it."""

    page: "Page"
    errors: list[str] = field(default_factory=list)  # of the console, and uncaught ones
    requests: list[str] = field(default_factory=list)  # to anything but the page's own address

    def axe(self) -> list[str]:
        """Return the serious findings of axe-core."""
        # Not as a script of the page, which its policy may refuse.
        self.page.evaluate(AXE.read_text())
        answer: dict[str, Any] = self.page.evaluate("axe.run()")
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
            for each in answer["violations"]
            if each["impact"] in GRAVE
            for node in each["nodes"]
        ]

    def scroll_through(self) -> None:
        """Bring every part of the page near the screen, so that all charts are built."""
        for figure in self.page.locator("figure[data-chart]").all():
            figure.scroll_into_view_if_needed()
        waiting = self.page.locator("figure[data-chart]:not([data-ready])")
        waiting.first.wait_for(state="detached")


Opener = Callable[..., Tab]


@contextmanager
def opener(browser: "Browser") -> Iterator[Opener]:
    """Give a function that opens addresses and files in new tabs, and close these in the end.

    The function takes an address or a file, the size of the window, the theme (light or dark), and
    whether JavaScript runs.
    """
    contexts = []

    def open_tab(
        where: str | Path,
        size: tuple[int, int] = DESKTOP,
        theme: str = "light",
        scripts: bool = True,
    ) -> Tab:
        address = where.as_uri() if isinstance(where, Path) else where
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
            java_script_enabled=scripts,
            offline=isinstance(where, Path),
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        tab = Tab(context.new_page())
        tab.page.on("pageerror", lambda error: tab.errors.append(f"{error}"))
        tab.page.on(
            "console",
            lambda said: (
                tab.errors.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        host = "/".join(address.split("/")[:3])
        tab.page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((host, "data:")) else tab.requests.append(asked.url)
            ),
        )
        tab.page.goto(address)
        return tab

    try:
        yield open_tab
    finally:
        for context in contexts:
            context.close()
