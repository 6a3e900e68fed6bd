"""The documents: every link in them leads somewhere, and their sentences begin with their subject."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
RIDDLE = re.compile(r"(?:^|[.:!?|]\s+|^[-*] )(Who|Whose|Whoever)\b", re.M)


def without_code(text):
    """Neither blocks nor spans of code have links, or sentences."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors(text):
    """What a forge makes of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path, text):
    """The links of this text, which lies there, that lead nowhere."""
    broken = []
    for link in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere in the world
        name, _, anchor = link.partition("#")
        target = path.parent / name
        if name and not target.exists():
            broken.append(link)
        elif anchor and anchor not in anchors(target.read_text() if name else text):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    assert broken_links(path, path.read_text()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_begin_with_their_subject(path):
    assert RIDDLE.findall(without_code(path.read_text())) == []


def test_a_broken_link_and_a_riddle_are_found():
    path = ROOT / "docs" / "planted.md"
    text = "# One\n[a](nowhere.md) [b](recovery.md) [c](#one) [d](#two) `[e](nowhere.md)` [f](https://example.org)\n"
    assert broken_links(path, text) == ["nowhere.md", "#two"]
    assert RIDDLE.findall("It ends. Whoever waits is told.") == ["Whoever"]
    assert RIDDLE.findall("The one who waits is told.") == []
