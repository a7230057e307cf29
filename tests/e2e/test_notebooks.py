"""The notebooks of examples/, run by a real kernel as a user runs them: one after the other."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
BOOKS = ROOT / "examples" / "notebooks"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the cells of each notebook show, by its name: MIME types, and the text of the last."""
    folder = tmp_path_factory.mktemp("notebooks")
    variables = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "HPOSVC_HOME": folder / "home",
        "IPYTHONDIR": folder / "ipython",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
    }
    outputs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HPOSVC_DB", raising=False)
        for name, value in variables.items():
            patch.setenv(name, str(value))
        for name in ("first_sweep", "reading_a_sweep"):
            book = nbformat.read(BOOKS / f"{name}.ipynb", as_version=4)
            NotebookClient(book, timeout=240, resources={"metadata": {"path": folder}}).execute()
            outputs[name] = [output for cell in book.cells for output in cell.get("outputs", ())]
    return outputs


def test_a_first_sweep_ends_with_a_good_model(shown):
    html = [
        output["data"].get("text/html", "") for output in shown["first_sweep"] if "data" in output
    ]
    assert any("20 of 20 trials" in text for text in html)  # the table that followed the sweep
    assert "best accuracy=" in html[-1]  # of the result
    assert float(shown["first_sweep"][-1]["text"].split()[-1]) > 0.9


def test_a_sweep_is_read_as_tables_a_picture_and_a_report(shown):
    data = [output["data"] for output in shown["reading_a_sweep"] if "data" in output]
    sweep, why, trials, curves, report = data
    assert "first-sweep-" in sweep["text/html"]
    assert "How sure that is" in why["text/html"]
    assert "<table" in trials["text/html"]
    assert "image/png" in curves
    assert "report.html" in report["text/html"]


def test_notebooks_are_stored_without_outputs():
    for file in BOOKS.glob("*.ipynb"):
        book = nbformat.read(file, as_version=4)
        nbformat.validate(book)
        assert not any(cell.get("outputs") for cell in book.cells), file
