"""Imported experiments are held against NNI, which is installed for that into a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# All that NNI's configuration needs beside our packages.
PACKAGES = ("nni==3.0", "colorama==0.4.6", "json-tricks==3.17.3", "schema==0.7.8")
FIELDS = Path(__file__).with_name("test_nni_fields.py")


@pytest.mark.full
def test_imported_experiments_are_held_against_nni(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    subprocess.run([*pip, "--target", f"{tmp_path}", *PACKAGES], check=True)
    paths = [f"{tmp_path}", *filter(None, [os.environ.get("PYTHONPATH")])]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"{FIELDS}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
    assert " skipped" not in run.stdout
