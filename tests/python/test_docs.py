"""The Python of the README and of the pages runs as it stands there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def blocks_of(page):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "import turbogr" in block]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_page(page, columns, monkeypatch, tmp_path):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    log = {"userId": columns["user_id"] - 1000, "movieId": columns["item_id"], "timestamp": columns["timestamp"]}
    pandas.DataFrame(log).to_csv("ratings.csv", index=False)
    for block in blocks_of(page):
        exec(compile(block, page, "exec"), {"__name__": "__main__"})


def test_there_are_pages():
    assert {"README.md", "docs/python.md"} <= {page for page in PAGES if blocks_of(page)}
