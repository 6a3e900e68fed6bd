"""The documents: every link in them leads somewhere; every reader of Markdown sees their lists; the list of decisions is whole.
Sentences of documents, comments and the library's strings begin with their subject; so do names of functions and documents."""

import ast
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("src", "include", "tests", "ctests", "examples", "benches", "bindings", "scripts", "fuzz")
ENDS = ("rs", "h", "c", "hpp", "cpp", "py")
SOURCES = sorted(path for name in FOLDERS for end in ENDS for path in (ROOT / name).rglob(f"*.{end}"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
CELL_MAX = 160  # about two lines of a page
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
RIDDLE = re.compile(r"(?:^|[.:!?|]\s+|^[-*] )(Who|So who|Whose|Whoever)\b(?![^.:!|]*\?)", re.M)
SAID_RIDDLE = re.compile(r"(?:^|[.:;!?]\s+)(who|so who|whose|whoever)\s(?![^.:;!]*\?)", re.M | re.I)  # errors begin in lower case
NAME_RIDDLE = re.compile(r"\b(?:test_)?(?:only_)?(?:who|whose|whoever)_\w+(?=\()|^(?:\d+-)?(?:who|whose|whoever)-.*", re.M)
RUST = re.compile(r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])'|\br(#*)"(.*?)"\1|"((?:\\.|[^"\\])*)\"""", re.S)  # comments, and literals


def without_code(text):
    """Neither blocks nor spans of code have links, or sentences."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def of_python(text):
    """Comments and docstrings; lines of comments that follow each other are one."""
    found, last = [], -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#! ")
            if token.start[0] == last + 1 and found:
                found[-1] += " " + words
            else:
                found.append(words)
            last = token.start[0]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return found + [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


def of_rust_or_c(text):
    """Blocks of comments, and lines of comments; those that follow each other are one, up to an empty one."""
    found, before = [], ""
    text = re.sub(r"/\*(.*?)\*/", lambda block: re.sub(r"^[ \t]*\*?", "//", block[1], flags=re.M) + "\n", text, flags=re.S)
    for line in text.splitlines():
        comment = re.search(r"(?<![:\"])//[/!]?[!*]*(.*)$", line)
        words = comment[1].strip() if comment else ""
        if words and before:
            found[-1] += " " + words
        elif words:
            found.append(words)
        before = words
    return found


def literals(text):
    """The strings of Rust code, among them the sentences of errors and of the log; a line that goes on in the next is one with it."""
    found = (raw or plain for _, raw, plain in RUST.findall(text))
    return [re.sub(r"\\\n\s*", "", string) for string in found if string]


def long_cells(text):
    """Cells of tables that take more than two lines of a page."""
    rows = re.findall(r"^\|.*\|$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", re.sub(LINK, lambda link: link[0].split("](")[0], row))]
    return [cell for cell in cells if len(cell) > CELL_MAX]


def comments(path):
    return (of_python if path.suffix == ".py" else of_rust_or_c)(path.read_text())


def misread_lists(text):
    """The first lines of items that not every reader of Markdown sees as items: some want an empty line before a list that follows a
    paragraph, and before an item that follows one of several paragraphs."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    item = r"(?:[-*] |\d+\. )"
    after_paragraph = re.findall(rf"(?:\A|\n\n)( *)(?!{item}|[ |#>])[^\n]+(?:\n\1(?!{item}| )[^\n]+)*\n\1({item}[^\n]*)", text)
    after_several = re.findall(rf"\n\n +(?!{item})\S[^\n]*(?:\n +\S[^\n]*)*\n({item}[^\n]*)", text)
    return [line for _, line in after_paragraph] + after_several


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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lists_are_read_alike_everywhere(path):
    assert misread_lists(path.read_text()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_cells_have_two_lines_at_most(path):
    assert long_cells(path.read_text()) == []


def test_sentences_of_comments_begin_with_their_subject():
    said = ((path, comment) for path in SOURCES for comment in comments(path))
    found = [f"{path.relative_to(ROOT)}: {comment}" for path, comment in said if RIDDLE.search(without_code(comment))]
    assert found == []


def test_strings_of_the_library_begin_with_their_subject():
    said = ((path, string) for path in SOURCES if path.suffix == ".rs" for string in literals(path.read_text()))
    assert [f"{path.relative_to(ROOT)}: {string}" for path, string in said if SAID_RIDDLE.search(string)] == []


def test_names_of_functions_and_documents_begin_with_their_subject():
    own = pathlib.Path(__file__)
    functions = [f"{path.relative_to(ROOT)}: {name}" for path in SOURCES if path != own for name in NAME_RIDDLE.findall(path.read_text())]
    assert functions + [path.name for path in DOCUMENTS if NAME_RIDDLE.match(path.name)] == []


def test_every_decision_is_in_the_list():
    folder = ROOT / "docs" / "decisions"
    files = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    titles = [(path, *path.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)) for path in files]
    listed = re.findall(r"^- .*$", (folder / "README.md").read_text(), re.M)
    assert listed == [f"- [{number}]({path.name}) {title}" for path, number, title in titles]


def lacks_a_part(text):
    """Whether a decision does not begin with what was decided, or names nothing that was decided against."""
    parts = re.split(r"^## (.*)\n", text, flags=re.M)
    against = dict(zip(parts[1::2], parts[2::2])).get("Decided against", "")
    return parts[1:2] != ["Decided"] or not re.search("^- ", against, re.M)


def test_every_decision_says_what_was_decided_and_what_was_not():
    decisions = (ROOT / "docs" / "decisions").glob("[0-9]*.md")
    assert sorted(path.name for path in decisions if lacks_a_part(path.read_text())) == []


def test_every_example_is_in_the_list():
    listed = re.findall(r"^\| \[(\w+)\]\(\1\) \|", (ROOT / "examples" / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())


def test_every_page_is_in_the_menu_of_the_site():
    menu = re.findall(r"^ +- [^\n]*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}
    assert sorted(pages - decisions - set(menu)) == [], "each needs a line in mkdocs.yml"
    hooks = (ROOT / "scripts" / "site" / "hooks.py").read_text()
    outside = [str(path.relative_to(ROOT)) for path in DOCUMENTS if ROOT / "docs" not in path.parents]
    places = dict(re.findall(r'^ +"(\S+\.md)": "(\S+\.md)",$', hooks, re.M))
    assert [name for name in outside if places.get(name) not in menu] == [], "each needs a line there and in scripts/site/hooks.py"


def test_a_broken_link_and_a_riddle_are_found():
    path = ROOT / "docs" / "planted.md"
    text = "# One\n[a](nowhere.md) [b](recovery.md) [c](#one) [d](#two) `[e](nowhere.md)` [f](https://example.org)\n"
    assert broken_links(path, text) == ["nowhere.md", "#two"]
    assert RIDDLE.findall("It ends. Whoever waits is told.") == ["Whoever"]
    assert RIDDLE.findall("The one who waits is told. Who waits?") == []
    strings = literals("""('"', "a\\"", r#"Whose "b""#); // "Who waits"\nf("it ended: who \\\n   waits", "who?"); "Whoever waits" """)
    assert strings == ['a\\"', 'Whose "b"', "it ended: who waits", "who?", "Whoever waits"]
    assert [string for string in strings if SAID_RIDDLE.search(string)] == ['Whose "b"', "it ended: who waits", "Whoever waits"]
    assert NAME_RIDDLE.findall("fn who_waits() { f(one_who_waits()) }\ndef test_whose_turn(x):\n    who_waits = whole_of(x)\n") == [
        "who_waits", "test_whose_turn"]
    names = ("001-who-waits.md", "whose-turn.md", "002-one-who-waits.md", "003-whole.md")
    assert [name for name in names if NAME_RIDDLE.match(name)] == ["001-who-waits.md", "whose-turn.md"]
    assert long_cells(f"| a | {'b' * 161} |\n| [{'c' * 150}](https://example.org/long) | d |\n") == ["b" * 161]
    assert misread_lists("One:\n- a\n\n1. b\n\n   b\n2. c\n\n3. d\n4. e\n") == ["- a", "2. c"]
    assert lacks_a_part("# 1. It\n\n## Decided\n\nIt.\n") and lacks_a_part("# 1. It\n\n## Decided\n\nIt.\n\n## Decided against\n\nNothing.\n")
    assert not lacks_a_part("# 1. It\n\n## Decided\n\nIt.\n\n## Decided against\n\n- *Another*: no.\n")
    assert of_rust_or_c('/// It\n/// ends. Who\n\nlet x = "http://a"; // comes\n') == ["It ends. Who", "comes"]
    assert of_rust_or_c("/* Who\n * waits. */\nint x;\n/** Who ends. */") == ["Who waits.", "Who ends."]
    assert of_python('"""Who\nwaits."""\nx = 1  # Who ends.\n# It\n# waits.\n') == ["Who ends. It waits.", "Who\nwaits."]
