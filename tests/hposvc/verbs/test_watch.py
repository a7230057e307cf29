"""`hposvc watch` without a terminal, and what it refuses."""

import command_line
import pytest
import recorded_home

from hposvc import api


@pytest.fixture
def watch(tmp_path, capfd):
    """Return a function that watches a sweep of a home: exit code, lines and errors."""
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.cut_off(sweeps, "cut-off")
    recorded_home.replay(sweeps, "v1-front", "front")

    def run(*arguments):
        code, out, err = command_line.run(capfd, "watch", *arguments, "--home", tmp_path)
        return code, out.splitlines(), err

    return run


def test_without_a_terminal_it_prints_lines_until_nothing_more_will_come(watch):
    code, lines, _ = watch("cut-off")
    assert code == 0
    assert "0 of " in lines[0]
    assert lines[-1].endswith("no driver is at work; go on with: hposvc resume cut-off")
    code, lines, _ = watch("front")
    assert "front of " in lines[0]
    assert "COMPLETED" in lines[-1]
