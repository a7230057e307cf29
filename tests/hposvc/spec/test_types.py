"""Values of a spec's keys. If these fail, `1h30m` is another time than people think."""

import pytest

from hposvc.errors import SpecError
from hposvc.spec import types
from trainables.storage.checkpoint import Period


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(90, 90.0), (0.5, 0.5), ("90s", 90.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("3d", 259200.0)],
)
def test_a_duration_is_in_seconds(value, seconds):
    assert types.read_seconds(value) == seconds


@pytest.mark.parametrize("value", ["90", "h", "1h 30m", "-1s", -1, True, None, "1w", float("nan")])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="give a duration like 90s"):
        types.read_seconds(value)


@pytest.mark.parametrize(
    ("value", "count"),
    [(512, 512), ("1B", 1), ("1kB", 1000), ("1KiB", 1024), ("1.5 GiB", 3 * 2**29), ("2TB", 2e12)],
)
def test_a_size_is_in_bytes_with_units_of_1000_and_of_1024(value, count):
    assert types.read_bytes(value) == count


@pytest.mark.parametrize("value", ["4", "4G", "4KB", 0, -1, 1.5, True, "9999999TiB"])
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ValueError, match="give a size like 512MiB"):
        types.read_bytes(value)


def test_checkpoints_come_by_units_by_updates_or_by_time():
    assert types.read_interval(3) == 3
    assert types.read_interval("500 steps") == Period(updates=500)
    assert types.read_interval("10m") == Period(seconds=600.0)
    for value in (0, "0 steps", "0s", 1.5, True, "often"):
        with pytest.raises(ValueError, match="a period like 500 steps"):
            types.read_interval(value)


def test_a_number_or_the_one_word_is_allowed():
    assert (types.read_parallel("auto"), types.read_parallel(1)) == ("auto", 1)
    assert (types.read_retries("unlimited"), types.read_retries(0)) == ("unlimited", 0)
    for read, value in ((types.read_parallel, 0), (types.read_retries, -1)):
        with pytest.raises(ValueError, match="give"):
            read(value)


@pytest.mark.parametrize("name", ["a", "a.b-c_1", "x" * 80])
def test_a_name_can_be_part_of_a_path(name):
    assert types.check_name(name) == name


@pytest.mark.parametrize("name", ["", ".a", "a/b", "a b", "x" * 81, "ä"])
def test_a_name_that_could_leave_its_folder_is_refused(name):
    with pytest.raises(ValueError, match="use letters"):
        types.check_name(name)


def test_last_is_no_id():
    with pytest.raises(ValueError, match="means the newest sweep"):
        types.check_id("last")


@pytest.mark.parametrize("text", ["pkg.module:Name", "train.py:Net", "/a b/train.py:Net"])
def test_a_trainable_is_a_module_s_or_a_file_s(text):
    assert types.check_reference(text) == text


@pytest.mark.parametrize("text", ["train.py", "pkg/module:Name", "train.py:1x", ":Name"])
def test_what_names_no_trainable_is_refused(text):
    with pytest.raises(ValueError, match="write module:Name"):
        types.check_reference(text)


def test_labels_are_ray_s_selectors():
    labels = {"gpu": "A100", "zone": ["a", "b"], "example.org/spot": "!true"}
    selectors = {"gpu": "A100", "zone": "in(a,b)", "example.org/spot": "!true"}
    assert types.read_labels(labels) == selectors
    with pytest.raises(SpecError) as refused:
        types.read_labels({"gpu": 3, "no name": "x"})
    assert [problem.path for problem in refused.value.problems] == [("gpu",), ("no name",)]


def test_all_mistakes_of_parameters_are_told_at_once():
    declared = {"lr": {"min": 1, "max": 0.1}, "width": 64, "batch": {"values": []}}
    with pytest.raises(SpecError) as refused:
        types.check_parameters(declared)
    assert [problem.path[0] for problem in refused.value.problems] == ["lr", "batch"]
