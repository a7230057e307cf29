"""A receiver of webhooks on this machine, which answers as a test says."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEADLINE_S = 120.0


@dataclass
class Receiver:
    """What came in, and the statuses to answer with, in turn; the last one stays."""

    statuses: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)  # of each answer
    text: str = "ok"
    release: threading.Event | None = None  # answers wait for it
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.received]

    @property
    def ids(self) -> list[str]:
        return [headers["idempotency-key"] for headers, _ in self.received]

    def taken(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests, each id once: what a careful receiver keeps."""
        return list(dict(zip(self.ids, self.bodies, strict=True)).values())


@contextmanager
def receiver(**options: Any) -> Iterator[Receiver]:
    """Listen on a port of the loopback address until the block is left."""
    room = Receiver(**options)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            room.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = room.statuses.pop(0) if len(room.statuses) > 1 else room.statuses[0]
            if room.release is not None:
                room.release.wait(DEADLINE_S)
            answer = room.text.encode()
            self.send_response(status)
            for name, value in {**room.headers, "Content-Length": f"{len(answer)}"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    room.url = f"http://127.0.0.1:{server.server_port}/hook/secret-path"

    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield room
    finally:
        if room.release is not None:
            room.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
