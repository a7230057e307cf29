"""docs/tutorial.md: a newcomer can do all of it, as it stands there."""

import shlex

import pages
import pytest

pytestmark = pytest.mark.long


def test_the_tutorial_leads_to_a_model_that_reads(python, tmp_path):
    task, model = pages.blocks("tutorial.md")
    (tmp_path / "digits.py").write_text(task)
    (tmp_path / "digits.yaml").write_text(*pages.blocks("tutorial.md", "yaml"))
    for line in "".join(pages.blocks("tutorial.md", "bash")).splitlines():
        command, *arguments = shlex.split(line)
        assert command == "hposvc"
        python("-m", "hposvc", *arguments, cwd=tmp_path)
    (tmp_path / "model.py").write_text(model)
    share, *_ = python("model.py", cwd=tmp_path).stdout.split("%")
    assert float(share) > 80  # a guess has 10
