"""Which errors mean a full disk. If these fail, a full disk costs trials their retries."""

import errno
import os

import pytest
import torch

from trainables.errors import is_disk_full
from trainables.storage.stores import StoreFailed

FULL = "/dev/full"  # a device on which there is never room
pytestmark = pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")  # noqa: PTH110


def raised(work):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each of them has an error of its own
        work()
    return caught.value


def write():
    with open(FULL, "wb") as stream:  # noqa: PTH123
        stream.write(b"1" * 2**16)


def save_by_stream():
    with open(FULL, "wb") as stream:  # noqa: PTH123
        torch.save({"weight": torch.zeros(2**16)}, stream)


def save_by_path():
    torch.save({"weight": torch.zeros(2**16)}, FULL)


def hide():
    try:
        write()
    except OSError as error:
        raise ValueError("the checkpoint was not written") from error


def meet():
    try:
        write()
    except OSError:
        raise KeyError("cleanup") from None


def upload():
    raise StoreFailed("storage s3://b: can't write: OSError: [Errno 28] No space left on device")


def exceed():
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


@pytest.mark.parametrize(
    "work",
    [write, save_by_stream, save_by_path, hide, meet, upload, exceed],
    ids=lambda f: f.__name__,
)
def test_an_error_of_a_full_disk_is_known_however_it_is_wrapped(work):
    assert is_disk_full(raised(work))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("28"),
        PermissionError(errno.EACCES, "Permission denied"),
        StoreFailed("storage s3://b: can't write: ConnectionError: reset"),
        RuntimeError("unexpected position embedding"),
        MemoryError(),
    ],
    ids=repr,
)
def test_another_error_is_none_of_a_full_disk(error):
    assert not is_disk_full(error)
