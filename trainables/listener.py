"""A listening socket whose callers must authenticate within a short time.

Its thread survives whatever callers do, and times when the process can open no more files or
threads.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

GREETING_S = 10.0  # time for a caller to authenticate
MOST_STRANGERS = 128  # callers not authenticated; more wait until one of these is, or has left
POLL_S = 1.0  # how often the thread looks for late callers, and whether the listener is closed
SHORT_S = 0.05  # until the thread tries again when it cannot accept callers

Known = Callable[[], None]  # to be called once the caller is authenticated
Serve = Callable[[socket.socket, Known], None]


def listen(host: str, backlog: int) -> socket.socket:
    """Return a socket that listens on a free port of an IPv4 or IPv6 address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=backlog)


class Listener:
    """A listener that serves each caller on a thread of its own, until closed.

    Args:
        host: the address of this machine for callers to connect to.
        name: of the accepting thread.
        serve: talks to a caller; the socket is closed when it returns.
    """

    def __init__(self, host: str, name: str, serve: Serve) -> None:
        self._serve = serve
        self._server = listen(host, 128)
        self._server.settimeout(POLL_S)
        self._strangers: dict[socket.socket, float] = {}  # with the time of connecting
        self._closed = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the listening socket."""
        host, port = self._server.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Accept no more callers."""
        self._closed.set()

    def _run(self) -> None:
        with self._server:
            while not self._closed.is_set():
                self._shut_down_strangers(time.monotonic() - GREETING_S)
                if len(self._strangers) >= MOST_STRANGERS or not self._accept_next():
                    self._closed.wait(SHORT_S)
        self._shut_down_strangers(time.monotonic())

    def _accept_next(self) -> bool:
        """Accept the next caller; return False if the process has no file or thread for it."""
        try:
            line, _ = self._server.accept()
        except TimeoutError:
            return True
        except OSError:  # EMFILE, or the caller has left again
            return False
        line.setblocking(True)
        self._strangers[line] = time.monotonic()
        try:
            threading.Thread(target=self._serve_caller, args=(line,), daemon=True).start()
        except RuntimeError:  # can't start new thread
            self._hang_up(line)
            return False
        return True

    def _serve_caller(self, line: socket.socket) -> None:
        try:
            self._serve(line, lambda: self._mark_known(line))
        finally:
            self._hang_up(line)

    def _mark_known(self, line: socket.socket) -> None:
        self._strangers.pop(line, None)

    def _hang_up(self, line: socket.socket) -> None:
        self._mark_known(line)
        line.close()

    def _shut_down_strangers(self, latest: float) -> None:
        """Shut down connections of unauthenticated callers made at or before `latest`."""
        for line, called_at in list(self._strangers.items()):
            # The caller's thread may have removed it meanwhile: the first to remove it decides.
            if called_at <= latest and self._strangers.pop(line, None) is not None:
                with suppress(OSError):  # the caller has just left
                    line.shutdown(socket.SHUT_RDWR)  # its thread then reads the end and returns
