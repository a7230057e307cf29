from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from cluster.dashboard import Dashboard
from cluster.jobs import JobsError


@pytest.fixture
def serve():
    """Serve an answer to every request; return the address and a list of received headers."""
    servers = []

    def serve(code, body=b"{}", location=None):
        headers = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                headers.append(dict(self.headers))
                self.send_response(code)
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", headers

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_dashboard_that_is_not_there_is_silent():
    with pytest.raises(JobsError, match=r"no Ray dashboard answers at http://127.0.0.1:1"):
        Dashboard("http://127.0.0.1:1").nodes()


@pytest.mark.parametrize(("code", "why"), [(401, "wants a token"), (403, "another token")])
def test_what_is_wrong_with_the_token_is_said(serve, code, why):
    url, _ = serve(code)
    with pytest.raises(JobsError, match=why):
        Dashboard(url, "secret").jobs()


def test_what_is_no_dashboard_is_told(serve):
    url, _ = serve(200, b"<html>hello</html>")
    with pytest.raises(JobsError):
        Dashboard(url).jobs()


def test_the_token_goes_to_the_dashboard_and_not_where_it_sends_us(serve):
    elsewhere, theirs = serve(200, b"[]")
    url, ours = serve(302, location=f"{elsewhere}/login")
    with pytest.raises(JobsError, match="is no Ray dashboard"):
        Dashboard(url, "secret").jobs()
    assert ours[0]["Authorization"] == "Bearer secret"
    assert theirs == []
