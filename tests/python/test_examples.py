"""The notebooks run from top to bottom."""

import json
import pathlib

import pytest

import turbogr

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_notebook(name, monkeypatch, tmp_path):
    cells = json.loads((EXAMPLES / name).read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code and all(not cell.get("outputs") for cell in cells), "notebooks are kept without their outputs"
    if any("import torch" in cell for cell in code):
        # Two libraries' threads that wait for each other crawl on a busy machine.
        pytest.importorskip("torch").set_num_threads(1)
        turbogr.ops.set_threads(1)
    else:
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code, 1):
        exec(compile(cell, f"{name}, cell {number}", "exec"), names)
