"""The addresses that a webhook of a spec may be at: whoever wrote the spec may be hostile."""

import ipaddress
from dataclasses import dataclass, field

ALLOWED = "HPOSVC_NOTIFY_ALLOW"  # the variable with the list of what is allowed
PUBLIC, PRIVATE = "public", "private"  # in that list: all addresses of such networks
NOTHING = "none"  # in that list, alone

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PRIVATE_NETWORKS: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
# Services of clouds that hand out credentials, in networks that are private otherwise.
METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254")))
NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class Allowed:
    """Addresses that may be reached. Loopback and link-local addresses must be named themselves."""

    public: bool = True
    private: bool = False  # PRIVATE_NETWORKS
    hosts: frozenset[str] = field(default_factory=frozenset)
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Allowed":
        """Return what a list like `public, chat.internal, 127.0.0.1, 10.1.0.0/16` allows.

        An empty list allows all public addresses.
        """
        entries = {entry.strip().lower() for entry in text.split(",") if entry.strip()}
        networks = {entry: _network(entry) for entry in entries}
        return cls(
            PUBLIC in entries or not entries,
            PRIVATE in entries,
            frozenset(entries - {PUBLIC, PRIVATE, NOTHING}),
            tuple(network for network in networks.values() if network is not None),
        )

    def permits(self, host: str, address: str) -> bool:
        """Return whether a host may be reached at an address that it was resolved to."""
        effective = _effective(address)
        if host.lower().rstrip(".") in self.hosts or any(effective in net for net in self.networks):
            return True
        if effective.is_multicast or effective in METADATA:
            return False
        if self.private and any(effective in network for network in PRIVATE_NETWORKS):
            return True
        return self.public and effective.is_global

    def __str__(self) -> str:
        kinds = {"public addresses": self.public, "private addresses": self.private}
        names = [*(kind for kind, holds in kinds.items() if holds), *sorted(self.hosts)]
        return ", ".join(names) or "nothing"


def _network(text: str) -> Network | None:
    """Return the network or single address in a text; None: it is the name of a host."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _effective(text: str) -> IpAddress:
    """Return an address; of an IPv6 address that stands for an IPv4 address, the latter."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address
