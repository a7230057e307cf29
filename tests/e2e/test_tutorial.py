"""docs/tutorial.md: a newcomer can do all of it, as it stands there."""

import pages
import pytest

pytestmark = pytest.mark.full


def test_the_tutorial_leads_to_a_model_that_reads(python, tmp_path):
    *_, said = pages.play("tutorial.md", tmp_path, python, "digits.py", "digits.yaml")
    share, *_ = said.split("%")
    assert float(share) > 80  # a guess has 10
