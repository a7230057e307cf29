"""What a webhook may reach. If these tests fail, a spec reaches what only its server may reach."""

import pytest

from hposvc.tracking.addresses import Allowed

NOBODY = Allowed.read("")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "224.0.0.1", "239.1.1.1"),
        *("240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("2002:7f00:1::", "2002:a00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    ],
)
def test_no_address_that_is_not_public_is_reached(address):
    assert not NOBODY.permits("hooks.example.org", address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07::1", "::ffff:1.1.1.1"])
def test_public_addresses_are_reached(address):
    assert NOBODY.permits("hooks.example.org", address)


def test_private_opens_private_networks_and_neither_loopback_nor_metadata():
    private = Allowed.read("public,private")
    assert private.permits("chat", "10.1.2.3")
    assert private.permits("chat", "fd12::1")
    assert private.permits("chat", "::ffff:192.168.0.9")
    for address in ("127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254", "100.100.100.200"):
        assert not private.permits("chat", address)


def test_a_listed_host_network_or_address_is_reached_and_no_other():
    allowed = Allowed.read("public, Chat.Internal , 10.1.0.0/16,127.0.0.1")
    assert allowed.permits("chat.internal", "10.9.9.9")
    assert allowed.permits("CHAT.internal.", "127.0.0.1")
    assert allowed.permits("other", "10.1.255.1")
    assert allowed.permits("other", "127.0.0.1")
    assert not allowed.permits("other", "10.2.0.1")
    assert not allowed.permits("evil-chat.internal", "10.9.9.9")


def test_a_list_without_public_allows_what_it_names_and_no_more():
    allowed = Allowed.read("hooks.example.org")
    assert allowed.permits("hooks.example.org", "93.184.215.14")
    assert not allowed.permits("other.example.org", "93.184.215.14")
    assert f"{allowed}" == "hooks.example.org"
    assert not Allowed.read("none").permits("hooks.example.org", "93.184.215.14")
