"""The code of the documents, block by block as a reader would try it."""

import pathlib
import re

import pytest

import terracedb

PROJECT = pathlib.Path(__file__).resolve().parents[3]

# What each prints, where that is always the same.
PAGES = {
    "docs/python.md": ["b'sown' None", "b'rice/1' b'sown'", "b'rice/2' b'ripe'", "b'rice/2'", "b'rice/1'"],
    "docs/merge.md": ["1"],
    "docs/compaction-filter.md": [],
    "docs/change-feed.md": [],
    "docs/backup.md": [],
    "crates/python/README.md": ["b'rice/1' b'sown'", "b'rice/2' b'ripe'"],
}


def blocks(page):
    text = (PROJECT / page).read_text()
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, page
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with terracedb.Db("fields") as db:
        db[b"stock"] = b"3"
    names = {"terracedb": terracedb, "following": 1}
    for code in blocks(page):
        # What a block does not open itself is the store of the page.
        if "terracedb.Db(" not in code:
            names["db"] = terracedb.Db("fields")
            names["replica"] = terracedb.Db("replica")
        exec(compile(code, page, "exec"), names)
        for name in ("db", "replica"):
            if name in names:
                names.pop(name).close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(PAGES[page])] == PAGES[page]


def test_every_page_with_code_is_tried():
    pages = [*PROJECT.glob("docs/**/*.md"), PROJECT / "crates/python/README.md"]
    with_code = {str(page.relative_to(PROJECT)) for page in pages if "\n```python\n" in page.read_text()}
    assert with_code == set(PAGES)
