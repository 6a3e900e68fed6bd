"""docs/troubleshooting.md quotes sentences that the library says: each part of each is in its source."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
# A quotation begins a paragraph, or follows another one in its bold words.
QUOTED = re.compile(r"\*\*`([^`]+)`")


def source():
    """The text of all sentences: joined where a line is continued, with `...` for what is put in."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.rs")) if not path.name.endswith("_test.rs"))
    return re.sub(r"\{[^{}\n\"]*\}", "...", re.sub(r"\\\n\s*", "", text))


def missing(page, text):
    quotes = (" ".join(quote.split()) for quote in QUOTED.findall(page))
    parts = [part.strip() for quote in quotes for part in re.split(r"\.\.\.|[:;]", quote)]
    return [part for part in parts if part and part not in text]


def test_every_sentence_of_the_page_is_one_that_the_library_says():
    page, text = (ROOT / "docs" / "troubleshooting.md").read_text(), source()
    assert len(QUOTED.findall(page)) > 20
    assert missing(page, text) == []
    assert missing("**`is lost ... in a way that nobody knows`**", text) == ["in a way that nobody knows"]
