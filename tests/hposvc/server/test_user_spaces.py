import sys

import pytest
import served
from engines import await_none, living

from hposvc.errors import SpecError
from hposvc.server import user_spaces

DATA = {"parameters": {"space": "space.py:space", "width": 64}, "tags": {"team": "vision"}}


def resolve(folder, code, **options):
    (folder / "space.py").write_text(code)
    with served.without_user_code():
        return user_spaces.resolve(DATA, folder, **options)


def test_a_space_is_called_in_another_process(tmp_path):
    code = "print('hello')\ndef space(trial):\n    trial.suggest_float('lr', 0.1, 1.0)\n"
    data = resolve(tmp_path, code)
    assert data["parameters"]["lr"]["max"] == 1.0
    assert data["parameters"]["width"] == 64
    assert data["tags"]["team"] == "vision"
    assert not any(name.startswith("space_") for name in sys.modules)


def test_plain_parameters_need_no_process(tmp_path):
    data = {"parameters": {"lr": {"min": 0, "max": 1}}}
    assert user_spaces.resolve(data, tmp_path / "missing") == data


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def other(trial): pass", "has no such name; known: other"),
        ("def space(trial): raise KeyError('x')", "KeyError"),
        ("import os\nos._exit(0)", "without parameters"),
        ("import os\nos.write(3, b'[1]')\nos._exit(0)", "without parameters"),
    ],
)
def test_a_space_that_fails_is_a_problem_of_the_spec(tmp_path, code, message):
    with pytest.raises(SpecError, match=message) as caught:
        resolve(tmp_path, code)
    assert caught.value.problems[0].path == ("parameters", "space")


def test_a_space_that_takes_too_long_is_ended_with_all_that_it_began(tmp_path):
    code = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(SpecError, match="took more than"):
        resolve(tmp_path, code, timeout_s=8.0)
    await_none(lambda: living([int((tmp_path / "pid").read_text())]))
