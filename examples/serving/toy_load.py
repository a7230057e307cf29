"""An open-loop load of a server that streams tokens: requests come at rising rates, ready or not.

Each rate is a step, with what its requests saw: latencies, tokens, and the goodput, which is the
requests a second that were answered within the objective. It takes --url, --slo-ms and --rates.
"""

import argparse
import random
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import hposvc

flags = argparse.ArgumentParser()
flags.add_argument("--url", required=True)
flags.add_argument("--slo-ms", type=float, default=200.0, help="of a whole answer")
flags.add_argument("--rates", type=float, nargs="+", default=[10, 20, 40, 80], help="requests/s")
flags.add_argument("--seconds", type=float, default=1.0, help="of each rate")
given = flags.parse_args()
HOST = urlsplit(given.url).netloc


def ask(seen: list[tuple[float, float, int]]) -> None:
    """Send a request; note the seconds to its first and to its last token, and the tokens."""
    begun = time.perf_counter()
    connection = HTTPConnection(HOST, timeout=30)
    connection.request("GET", "/generate")
    answer = connection.getresponse()
    answer.readline()
    first = time.perf_counter() - begun
    tokens = 1 + len(answer.read().splitlines())
    seen.append((first, time.perf_counter() - begun, tokens))


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


for rate in given.rates:
    gaps, seen, threads = random.Random(0), [], []
    begun, due = time.perf_counter(), 0.0
    while due < given.seconds:
        time.sleep(max(0.0, begun + due - time.perf_counter()))
        threads.append(threading.Thread(target=ask, args=(seen,)))
        threads[-1].start()
        due += gaps.expovariate(rate)
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    hposvc.report(
        {
            "goodput": sum(1000 * whole <= given.slo_ms for _, whole, _ in seen) / took,
            "ttft_p99_ms": 1000 * percentile([first for first, _, _ in seen], 0.99),
            "latency_p99_ms": 1000 * percentile([whole for _, whole, _ in seen], 0.99),
            "tokens_per_s": sum(tokens for _, _, tokens in seen) / took,
            "failed": len(threads) - len(seen),
        }
    )
