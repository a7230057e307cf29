"""Envelopes: what is signed is as DSSE has it, and a key of one's own is made once, for oneself."""

import json
from base64 import b64decode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from hposvc.analysis import envelope
from hposvc.analysis.envelope import home_key, key_id, read_key, seal, unseal
from hposvc.errors import SpecError
from hposvc.journal.home import Home

MINE, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
PEM, NONE = serialization.Encoding.PEM, serialization.NoEncryption()
PKCS8 = serialization.PrivateFormat.PKCS8


def test_the_encoding_is_that_of_the_specification(monkeypatch):
    """It gives this example."""
    monkeypatch.setattr(envelope, "TYPE", "http://example.com/HelloWorld")
    encoded = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert envelope.encode(b"hello world") == encoded


def test_a_key_has_the_id_that_tools_of_in_toto_give_it():
    """The id is of securesystemslib 1.6: SSlibKey.from_crypto(key).keyid."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32))).public_key()
    assert key_id(key) == "63d00ee3cf4f5c61ad94efa696c68f13b608fe56ecea13fb144a6fd18e9235b9"


@given(st.binary())
def test_what_was_sealed_is_unsealed_by_the_key_alone(payload):
    text = json.dumps(seal(payload, MINE)).encode()
    assert unseal(text, MINE.public_key()) == (payload, "")
    _, why = unseal(text, OTHER.public_key())
    assert why == f"it is signed by the key {key_id(MINE.public_key())}"


@given(st.data())
def test_no_byte_of_payload_or_signature_can_be_another(data):
    sealed = seal(b'{"value": 0.25}', MINE)
    signature = sealed["signatures"][0]
    part, key = data.draw(st.sampled_from([(sealed, "payload"), (signature, "sig")]))
    changed = bytearray(b64decode(part[key]))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    part[key] = envelope.b64encode(changed).decode()
    _, why = unseal(json.dumps(sealed).encode(), MINE.public_key())
    assert why == "the file was changed after it was signed"


def test_one_of_several_signatures_is_enough():
    ours, theirs = (seal(b"it", key) for key in (MINE, OTHER))
    both = {**ours, "signatures": [*theirs["signatures"], *ours["signatures"]]}
    assert unseal(json.dumps(both).encode(), MINE.public_key()) == (b"it", "")


def test_a_signature_needs_no_id_of_its_key():
    sealed = seal(b"it", MINE)
    del sealed["signatures"][0]["keyid"]
    assert unseal(json.dumps(sealed).encode(), MINE.public_key()) == (b"it", "")
    assert unseal(json.dumps(sealed).encode(), OTHER.public_key())[1]


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"payload": "", "signatures": [1]}'])
def test_other_files_are_no_envelopes(text):
    with pytest.raises(SpecError, match="--verify: is no envelope of a signed statement"):
        unseal(text.encode(), MINE.public_key())


def test_a_home_gets_a_key_once_that_only_its_user_can_read(tmp_path):
    home = Home.of(tmp_path / "new" / "home", {})
    key = home_key(home)
    assert (home.path.stat().st_mode & 0o777) == 0o700
    assert ((home.path / "attest.key").stat().st_mode & 0o777) == 0o600
    public = read_key(home.path / "attest.pub", "--public-key")
    assert public == key.public_key() == home_key(home).public_key()


def test_other_files_are_no_keys(tmp_path):
    text = {
        "text.pem": b"hello",
        "ec.pem": ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, NONE),
        "locked.pem": MINE.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"x")),
        "mine.pem": MINE.private_bytes(PEM, PKCS8, NONE),
    }
    for name, data in text.items():
        (tmp_path / name).write_bytes(data)
    assert read_key(tmp_path / "mine.pem", "--key").public_key() == MINE.public_key()
    for name, option, said in (
        ("text.pem", "--key", ""),
        ("nothing.pem", "--key", ".* No such file"),
        ("locked.pem", "--key", "Password was not given"),
        ("ec.pem", "--key", "it is of another kind"),
        ("mine.pem", "--public-key", ""),
    ):
        with pytest.raises(
            SpecError, match=f"{option}: .*{name} is no key of ed25519 in PEM: {said}"
        ):
            read_key(tmp_path / name, option)
