"""DSSE envelopes: a payload with its ed25519 signature, as tools of in-toto read and write them.

A key within the file would prove nothing about who signed, so there is none.
Source: the specification DSSE 1.0.2 (secure-systems-lab), protocol.md and envelope.md.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from cluster.tokens import make_private
from hposvc.errors import fail
from hposvc.journal.home import PRIVATE, Home

TYPE = "application/vnd.in-toto+json"
KEY, PUBLIC_KEY = "attest.key", "attest.pub"  # in the home


def encode(payload: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE.encode(), len(payload), payload)


def seal(payload: bytes, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the envelope of a payload, signed with a key."""
    signature = b64encode(key.sign(encode(payload))).decode()
    signatures = [{"keyid": key_id(key.public_key()), "sig": signature}]
    return {"payloadType": TYPE, "payload": b64encode(payload).decode(), "signatures": signatures}


def unseal(text: bytes, key: Ed25519PublicKey) -> tuple[bytes, str]:
    """Return the payload of an envelope, and why it is not signed by a key; empty: it is.

    Raises:
        SpecError: the text is no envelope.
    """
    try:
        envelope = json.loads(text)
        payload = b64decode(envelope["payload"])
        signed = {f"{it.get('keyid')}": b64decode(it["sig"]) for it in envelope["signatures"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise fail("is no envelope of a signed statement", "--verify") from error
    for signature in signed.values():
        try:
            key.verify(signature, encode(payload))
        except InvalidSignature:
            continue
        return payload, ""
    if key_id(key) in signed:
        return payload, "the file was changed after it was signed"
    return payload, f"it is signed by the key {', '.join(signed)}"


def key_id(key: Ed25519PublicKey) -> str:
    """Return a key's id as securesystemslib makes it, a hash of canonical JSON."""
    public = json.dumps({"public": key.public_bytes_raw().hex()}, separators=(",", ":"))
    text = f'{{"keytype":"ed25519","keyval":{public},"scheme":"ed25519"}}'
    return hashlib.sha256(text.encode()).hexdigest()


def home_key(home: Home) -> Ed25519PrivateKey:
    """Return the home's own key; make it if there is none, and write its public key beside it."""
    home.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    pem, file, new = serialization.Encoding.PEM, home.path / KEY, Ed25519PrivateKey.generate()
    form, clear = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    make_private(file, new.private_bytes(pem, form, clear).decode())
    key: Ed25519PrivateKey = read_key(file, "--key")
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (home.path / PUBLIC_KEY).write_bytes(public)
    return key


def read_key(file: Path, option: str) -> Any:
    """Return the ed25519 key in a file of PEM: private for the option --key, otherwise public.

    Raises:
        SpecError: the file can't be read, or holds no such key.
    """
    private = partial(serialization.load_pem_private_key, password=None)
    load = private if option == "--key" else serialization.load_pem_public_key
    try:
        key = load(file.read_bytes())
        if not isinstance(key, Ed25519PrivateKey | Ed25519PublicKey):
            raise ValueError(f"it is of another kind ({type(key).__name__})")
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise fail(f"{file} is no key of ed25519 in PEM: {error}", option) from error
    return key
