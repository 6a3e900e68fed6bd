"""docs/troubleshooting.md quotes sentences that the library says: each part of each is in one text of its source, in this order."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
# A quotation begins a paragraph, or follows another one in its bold words.
QUOTED = re.compile(r"\*\*`([^`]+)`")
COMMENT = re.compile(r"(?m)(^|\s)//.*$")
INLINE_TESTS = re.compile(r"#\[cfg\(test\)\]\nmod \w+ \{")
# A character, which may be a quotation mark, or a text.
LITERAL = re.compile(r"""'(?:\\.|[^'\\])'|"((?:[^"\\]|\\.)*)\"""", re.S)
TESTS_ALONE = ("sim", "fuzz")


def is_test(path):
    return path.name.endswith("_test.rs") or path.name.startswith("test") or path.relative_to(ROOT / "src").parts[0] in TESTS_ALONE


def texts(source):
    """The texts of a source, without those of comments and tests: joined where a line is continued, with `...` for what is put in."""
    code = COMMENT.sub("", INLINE_TESTS.split(source)[0])
    found = (text for text in LITERAL.findall(re.sub(r"\\\n\s*", "", code)) if text)
    return [re.sub(r"\{[^{}\n\"]*\}", "...", text).replace('\\"', '"') for text in found]


def every_text():
    paths = [path for path in sorted((ROOT / "src").rglob("*.rs")) if not is_test(path)]
    return [text for path in paths for text in texts(path.read_text())]


def missing(page, said):
    """The parts of quotations, between colons and semicolons, that no text has."""
    quotes = (" ".join(quote.split()) for quote in QUOTED.findall(page))
    parts = (part.strip() for quote in quotes for part in re.split(r"[:;]", quote))
    patterns = {part: ".*".join(re.escape(piece.strip()) for piece in part.split("...")) for part in parts if part}
    return [part for part, pattern in patterns.items() if not any(re.search(pattern, text, re.S) for text in said)]


def test_every_sentence_of_the_page_is_one_that_the_library_says():
    page, said = (ROOT / "docs" / "troubleshooting.md").read_text(), every_text()
    assert len(QUOTED.findall(page)) > 20
    assert missing(page, said) == []
    assert missing("**`is lost ... in a way that nobody knows`**", said) == ["is lost ... in a way that nobody knows"]


# What a first start most often meets, and a first program.
COMMON = ("could not be reached", "but nothing says where the scheduler is", "no scheduler answers", "the address is in use",
          "does not answer as a muster scheduler", "must be the same everywhere", "aborted the job with code", "nobody has set it within")


def test_the_commonest_sentences_have_an_entry():
    quotes = [" ".join(quote.split()) for quote in QUOTED.findall((ROOT / "docs" / "troubleshooting.md").read_text())]
    assert [words for words in COMMON if not any(words in quote and not quote.startswith("MUSTER_JOB_ID") for quote in quotes)] == []


def test_what_is_not_said_is_not_found():
    said = texts('// "a comment"\nlet a = "one {thing} \\\n    here"; // "behind code"\nlet b = \'"\';\nlet c = "another";\n'
                 '#[cfg(test)]\nmod tests {\n    const D: &str = "in a test";\n}\n')
    assert said == ["one ... here", "another"]
    assert missing("**`one ... here: another`**", said) == []
    for words in ("here ... one", "one ... another", "a comment", "behind code", "in a test"):
        assert missing(f"**`{words}`**", said) == [words]
