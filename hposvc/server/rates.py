"""How often a caller may ask."""

import ipaddress
import math
import time

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from hposvc.server.config import Requests
from hposvc.server.problems import ApiError


class Rates:
    """The requests of the last minutes, counted in this process."""

    def __init__(self, requests: Requests) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._owner = parse(requests.per_owner)
        self._address = parse(requests.per_address)
        self._wrong = parse(requests.wrong_tokens)

    def count_address(self, address: str) -> None:
        """Count a request from an address.

        Raises:
            ApiError: there were too many.
        """
        network = _network(address)
        self._count(self._address, f"requests from {network}", "address", network)

    def count_owner(self, owner: str) -> None:
        """Count a request with a token of this owner.

        Raises:
            ApiError: there were too many.
        """
        self._count(self._owner, f"requests of {owner}", "owner", owner)

    def count_wrong_token(self, address: str) -> None:
        """Count a token that is not valid; only such callers are refused for them.

        Raises:
            ApiError: there were too many.
        """
        network = _network(address)
        self._count(self._wrong, f"wrong tokens from {network}", "wrong", network)

    def _count(self, rate: RateLimitItem, what: str, *key: str) -> None:
        if self._limiter.hit(rate, *key):
            return
        reset = self._limiter.get_window_stats(rate, *key).reset_time
        wait_s = max(1, math.ceil(reset - time.time()))
        message, fix = f"too many {what}: {rate} at most", f"ask again in {wait_s} s"
        raise ApiError(429, "rate_limited", message, fix=fix, headers={"Retry-After": f"{wait_s}"})


def _network(address: str) -> str:
    """Return what counts as one caller: an address, but of IPv6 the network that a host gets."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return (
        f"{ipaddress.ip_network((address, 64), strict=False)}" if parsed.version == 6 else address
    )
