"""No archive writes outside its folder, fills the disk, or leaves anything behind if refused."""

import asyncio
import hashlib
import io
import random
import stat
import struct
import zipfile

import pytest
import served
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc import api
from hposvc.server.archives import Archives, Limits
from hposvc.server.problems import ApiError, PathOutside

SMALL = Limits(archive=2**16, files=5, total=2**18, free=2**12, depth=3, name=20, path=40)


@pytest.fixture
def archives(sweeps):
    return Archives(sweeps, SMALL)


async def _chunks(content):
    for at in range(0, len(content), 1000):
        yield content[at : at + 1000]


def receive(archives, content, sha256=None):
    sha256 = hashlib.sha256(content).hexdigest() if sha256 is None else sha256
    return asyncio.run(archives.receive(sha256, _chunks(content)))


def entries(*names, mode=stat.S_IFREG | 0o644, content=b"x"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo("placeholder")
            entry.filename = name  # as it is, without ZipInfo's own repairs
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def refused(archives, sweeps, content, status, code, **options):
    with pytest.raises((ApiError, PathOutside)) as caught:
        receive(archives, content, **options)
    if code == "path_outside":
        assert isinstance(caught.value, PathOutside)
    else:
        assert (caught.value.status_code, caught.value.code) == (status, code)
    assert [*sweeps.home.archives.iterdir()] == []
    assert [*sweeps.home.unpacked.iterdir()] == []
    outside = {path.name for path in sweeps.home.path.parent.iterdir()}
    assert outside == {"home"}


def test_an_archive_is_unpacked_once_for_its_user_alone(archives, sweeps):
    content = served.zipped({"train.py": "x = 1\n", "data/a.txt": "a"})
    sha256 = hashlib.sha256(content).hexdigest()
    assert archives.find(sha256) is None
    assert receive(archives, content)
    assert not receive(archives, content)
    folder = archives.find(sha256)
    assert (folder / "train.py").read_text() == "x = 1\n"
    assert (folder / "data" / "a.txt").read_text() == "a"
    assert archives.zip(sha256).read_bytes() == content
    for path in (folder, folder / "data", folder / "train.py"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_script_stays_executable_and_gets_no_other_bits(archives):
    content = entries("run.sh", mode=stat.S_IFREG | 0o6755)
    receive(archives, content)
    folder = archives.find(hashlib.sha256(content).hexdigest())
    assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/evil", "..", "a\\..\\..\\evil", "C:evil", "a/../b", "\\evil"],
)
def test_names_that_lead_out_are_refused(archives, sweeps, name):
    refused(archives, sweeps, entries("good", name), 400, "path_outside")


@pytest.mark.parametrize(
    "names",
    [("a", "a"), ("a", "A"), ("a", "a/b"), ("a/b", "A"), ("a/", "A"), ("\u00e9", "e\u0301")],
)
def test_names_that_a_disk_may_take_for_one_are_refused(archives, sweeps, names):
    refused(archives, sweeps, entries(*names), 400, "bad_request")


@pytest.mark.parametrize("name", ["", "a//b", "./a", "a/.", "a\nb", "a\0b", "x" * 21, "a/b/c/d"])
def test_odd_names_are_refused(archives, sweeps, name):
    refused(archives, sweeps, entries(name), 400, "bad_request")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(archives, sweeps, kind):
    content = entries("link", mode=kind | 0o777, content=b"/etc/passwd")
    refused(archives, sweeps, content, 400, "bad_request")


def test_bombs_are_refused_before_they_are_unpacked(archives, sweeps):
    refused(archives, sweeps, served.zipped({"a": b"\0" * 2**19}), 413, "too_large")  # total
    refused(archives, sweeps, served.zipped({"a": b"\0" * 2**17}), 413, "too_large")  # ratio
    refused(archives, sweeps, entries(*"abcdef"), 413, "too_large")  # files
    refused(archives, sweeps, random.Random(0).randbytes(2**16 + 1), 413, "too_large")  # size


def test_a_directory_of_a_million_names_is_not_even_read(archives, sweeps):
    content = bytearray(entries("a"))
    at = content.rfind(b"PK\x05\x06")
    struct.pack_into("<L", content, at + 12, 2**31)
    refused(archives, sweeps, bytes(content), 413, "too_large")
    zip64 = content[:at] + b"PK\x06\x07" + bytes(16) + content[at:]
    refused(archives, sweeps, bytes(zip64), 413, "too_large")


def test_a_declared_size_that_is_a_lie_unpacks_no_more(archives, sweeps):
    content = bytearray(served.zipped({"a": b"\0" * 2**19}))
    at = content.find(b"PK\x01\x02")
    struct.pack_into("<L", content, at + 24, 10)  # of the directory, which the checks read
    refused(archives, sweeps, bytes(content), 400, "bad_request")


def test_what_is_no_zip_or_another_one_is_refused(archives, sweeps):
    refused(archives, sweeps, b"hello", 400, "bad_request")
    refused(archives, sweeps, b"", 400, "bad_request")
    refused(archives, sweeps, entries("a"), 400, "bad_request", sha256="0" * 64)
    encrypted = bytearray(entries("a"))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.find(mark) + offset] |= 1
    refused(archives, sweeps, bytes(encrypted), 400, "bad_request")


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_zip_is_more_than_a_refusal(data, tmp_path_factory):
    sweeps = api.Sweeps.open(tmp_path_factory.mktemp("home"))
    archives = Archives(sweeps, SMALL)
    content = bytearray(served.zipped({"a.py": "x = 1\n" * 20, "b/c.txt": "text"}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(len(content) - 30, len(content)))])
    try:
        receive(archives, cut)
    except (ApiError, PathOutside):
        assert [*sweeps.home.unpacked.iterdir()] == []
    sweeps.journal.store.close()


def test_files_are_stored_as_an_archive_of_their_own(archives):
    one = archives.add({"b.py": "2", "a.py": "1"})
    assert archives.add({"a.py": "1", "b.py": "2"}) == one
    assert (archives.find(one) / "a.py").read_text() == "1"
    with zipfile.ZipFile(archives.zip(one)) as archive:
        assert archive.namelist() == ["a.py", "b.py"]
    with pytest.raises(PathOutside):
        archives.add({"../a.py": ""})
    with pytest.raises(ApiError, match="surrogates"):
        archives.add({"a.py": "\ud800"})
