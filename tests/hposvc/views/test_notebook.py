"""A running sweep in a notebook: docs/how-to/your-code.md, run by a real kernel."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pages
import pytest
from nbclient import NotebookClient
from simulated_sweeps import make_controller, make_spec

from hposvc.views.notebook import draw, in_notebook

ROOT = Path(__file__).parents[3]
CELLS = pages.blocks("how-to/your-code.md")[:3]


@pytest.mark.full
def test_the_page_runs_in_a_notebook_with_a_table_that_is_updated_in_place(tmp_path, monkeypatch):
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    shown = []
    client = NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    take = client.process_message

    def watch(message, *arguments):
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append((message["msg_type"], message["content"]["data"].get("text/html", "")))
        return take(message, *arguments)

    client.process_message = watch
    client.execute()
    updates = [html for kind, html in shown if kind == "update_display_data"]
    assert updates
    tables = [
        output["data"]["text/html"]
        for output in book.cells[0].outputs
        if output["output_type"] == "display_data" and "<table>" in output["data"]["text/html"]
    ]
    assert len(tables) == 1
    assert "COMPLETED" in tables[0]
    assert "6 of 6 trials" in tables[0]
    assert "font-weight:bold" in tables[0]
    for cell in book.cells[1:]:
        (output,) = cell.outputs
        assert "<table" in output["data"]["text/html"]


def test_outside_a_notebook_ipython_is_not_loaded():
    code = (
        "import sys, hposvc.views.live; from hposvc.views.notebook import in_notebook;"
        "print(in_notebook(), 'IPython' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ended.stdout.split() == ["False", "False"]
    assert not in_notebook()


def test_names_of_others_are_text_in_the_table():
    state = make_controller(make_spec(name="x")).state
    assert "&lt;b&gt;" in draw("<b>", state, 0.0)
