"""Secrets in what a driver's process prints, and in its errors."""

import os

import pytest

from hposvc.errors import SpecError, fail
from hposvc.server.redacted import redacted_output

SECRET = "hunter-22-never-seen"


def test_neither_output_nor_errors_of_the_check_hold_a_secret(capfd):
    def check() -> None:
        os.write(1, f"logging in with {SECRET}\n".encode())
        raise fail(f"no access with {SECRET}", "trainable") from ValueError(SECRET)

    expected = r"^trainable: no access with \[secret\]$"
    with pytest.raises(SpecError, match=expected) as caught, redacted_output([SECRET]):
        check()
    assert caught.value.__cause__ is None
    out, err = capfd.readouterr()
    assert (out, err) == ("", "logging in with [secret]\n")
