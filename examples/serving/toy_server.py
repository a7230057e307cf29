"""A toy of an inference server: latency and memory depend on two settings and on the load.

It decodes up to --max-num-seqs requests at once; each more of them slows all down, as a batch does,
and needs a part of a cache that may not fit. Others wait. It sleeps in place of computing.
"""

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MEMORY = 40  # of the cache, in units
TOKENS = 8  # of an answer

flags = argparse.ArgumentParser()
flags.add_argument("--port", type=int, required=True)
flags.add_argument("--max-num-seqs", type=int, default=4)
flags.add_argument("--cache-per-seq", type=int, default=2, help="units; more is faster")
given = flags.parse_args()

if given.max_num_seqs * given.cache_per_seq > MEMORY:
    raise MemoryError(f"the cache of {given.max_num_seqs} sequences does not fit")
SEATS = threading.BoundedSemaphore(given.max_num_seqs)
TOKEN_S = 0.004 * (1 + 0.1 * given.max_num_seqs) * (1 + 1 / given.cache_per_seq)


class Handler(BaseHTTPRequestHandler):
    """Answers /health at once, and any other path by TOKENS tokens, a line each."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if self.path == "/health":
            return
        with SEATS:
            for _ in range(TOKENS):
                time.sleep(TOKEN_S)
                self.wfile.write(b"token\n")

    def log_message(self, *_: object) -> None:
        """Print nothing for each request."""


class Server(ThreadingHTTPServer):
    """A server whose queue of connections is as long as a test needs."""

    request_queue_size = 256


Server(("127.0.0.1", given.port), Handler).serve_forever()
