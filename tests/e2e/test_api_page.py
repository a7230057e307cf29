"""reference/api.md: its commands work as they stand there."""

import json
import subprocess
import sys

import pages
import pytest
from real_server import environment, serving

PAGE = pages.read("reference/api.md")
BLOCKS = pages.fenced(PAGE)


def test_its_json_is_json():
    assert all(json.loads(text) for language, text in BLOCKS if language == "json")


@pytest.mark.long
def test_its_commands_and_programs_run_one_after_the_other(tmp_path):
    script = "\n".join(text for language, text in BLOCKS if language == "bash")
    program = "\n".join(text for language, text in BLOCKS if language == "python")
    with serving(tmp_path / "home") as server:
        ran = [
            subprocess.run(
                [*command, text.replace("http://127.0.0.1:8900", server.url)],
                env=environment(tmp_path / "home"),
                capture_output=True,
                text=True,
                timeout=200,
            )
            for command, text in ((["bash", "-ec"], script), ([sys.executable, "-c"], program))
        ]
    assert [each.returncode for each in ran] == [0, 0], ran
    output = ran[0].stdout
    assert json.loads(output.partition("}")[0] + "}")["sweep"] == "first"
    assert "event: finished" in output
    assert "event: end" in output
    assert '"best":{"sweep":"first"' in output
    assert output.endswith("304\n")
