"""A server's pages, as a browser without JavaScript gets them."""

from html.parser import HTMLParser

from fastapi.testclient import TestClient

from hposvc.server.app import create_app
from hposvc.server.service import Service

ADDRESS = "http://127.0.0.1:8900"
HTML = {"Accept": "text/html"}


def client(sweeps, **options):
    """Return a client of a server of the sweeps that asks for pages."""
    app = create_app(Service(sweeps, **options))
    return TestClient(app, ADDRESS, headers=HTML, raise_server_exceptions=False)


VOID = {"meta", "link", "img", "input", "br"}


class Reader(HTMLParser):
    """The elements of a page; it finds those that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.wrong = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def all(self, tag):
        return [attrs for name, attrs in self.seen if name == tag]


def read(served, path, status=200):
    """Return a page, which is well formed, and runs nothing that is not a file of the server."""
    response = served.get(path)
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"].startswith("text/html")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    page = Reader(response.text)
    assert not page.open, path
    assert not page.wrong, path
    for tag, attrs in page.seen:
        assert not [name for name in attrs if name.startswith("on") or name == "style"], (
            tag,
            attrs,
        )
        assert tag != "style"
    for script in page.all("script"):
        assert script.get("src", "").startswith("/static/") or script["type"] == "application/json"
    assert len(page.all("main")) == len(page.all("h1")) == 1
    assert len(page.all("caption")) == len(page.all("table"))
    names = [attrs["id"] for _, attrs in page.seen if "id" in attrs]
    assert len(names) == len(set(names)), path
    return page
