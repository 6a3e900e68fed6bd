"""Every block of code in the documents says its language, and is a test's, which compiles or runs it as its page says; or it is right
in its language: programs compile, commands and files are read. Commands that no test runs stand in left_out.txt with the reason."""

import functools
import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from cluster import TREE
from pages import STRICT, Page
from test_doc_links import DOCUMENTS

HERE = pathlib.Path(__file__).parent
NAMES = sorted(str(path.relative_to(TREE)) for path in {*DOCUMENTS, *(TREE / "examples").rglob("*.md"), *(TREE / "bindings").rglob("*.md")})
# What does something when it is pasted.
RUN = ("sh", "cmake", "python")
LIMIT = 60


def checked(words, **more):
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT, **more)
    return ended.stderr if ended.returncode != 0 else None


def c(text, folder):
    (folder / "block.c").write_text(text)
    return checked(["cc", *STRICT, "-D_DEFAULT_SOURCE", "-fsyntax-only", f"-I{TREE / 'include'}", folder / "block.c"])


def cpp(text, folder):
    (folder / "block.cpp").write_text(text)
    own = [f"-I{TREE / name}" for name in ("include", "bindings/cpp")]
    return checked(["c++", "-std=c++17", *STRICT[1:], "-fsyntax-only", *own, folder / "block.cpp"])


def python(text, folder):
    try:
        compile(text, "block.py", "exec")
    except SyntaxError as error:
        return str(error)


def sh(text, folder):
    return checked(["bash", "-n", "-c", text])


def cmake(text, folder):
    """CMake runs it as a script, in which each command that belongs to a project does nothing."""
    names = re.findall(r"^\s*(\w+)\(", text, re.M)
    (folder / "block.cmake").write_text("".join(f"function({name})\nendfunction()\n" for name in names) + text)
    beside = pathlib.Path(sys.executable).with_name("cmake")
    return checked([beside if beside.exists() else "cmake", "-P", folder / "block.cmake"])


def data(text, folder):
    try:
        json.loads(text)
    except ValueError as error:
        return str(error)


def settings(text, folder):
    try:
        yaml.safe_load(text)
    except yaml.YAMLError as error:
        return str(error)


def mermaid(text, folder):
    sys.path.insert(0, str(TREE / "scripts" / "site"))
    try:
        importlib.import_module("diagrams").to_dot(text)
    except ValueError as error:
        return str(error)


def text(text, folder):
    """What is printed or drawn; a test that takes it knows more."""


LANGUAGES = {"c": c, "cpp": cpp, "python": python, "sh": sh, "cmake": cmake, "json": data, "yaml": settings, "mermaid": mermaid}
LANGUAGES["text"] = text


def wrong(blocks, folder):
    """What is wrong with which of these blocks."""
    found = []
    for number, (language, block) in enumerate(blocks, 1):
        if language not in LANGUAGES:
            found.append(f"block {number}: its language is {language!r}; known are {', '.join(LANGUAGES)}")
        elif complaint := LANGUAGES[language](block, folder):
            found.append(f"block {number} ({language}): {complaint}")
    return found


def left_out():
    """Page, language and number of each block that is left out, with the reason."""
    lines = [line for line in (HERE / "left_out.txt").read_text().splitlines() if not line.startswith("#")]
    return dict(re.fullmatch(r"(\S+ \w+ \d+): (\S.*)", line).groups() for line in lines)


@functools.cache
def taken():
    """Page and language of the blocks that tests take when they are imported."""
    for path in sorted(HERE.glob("test_*.py")):
        if re.search(r"^from pages import", path.read_text(), re.M):
            importlib.import_module(path.stem)
    return frozenset(Page.taken)


def not_run(names, taken):
    return {
        f"{name} {language} {number}"
        for name in names
        for language in RUN
        if (name, language) not in taken
        for number in range(1, 1 + sum(found == language for found, _ in Page(name).blocks()))
    } - Page.taken_blocks


@pytest.mark.parametrize("name", [name for name in NAMES if Page(name).blocks()])
def test_every_block_is_right_in_its_language(name, tmp_path):
    nobodys = [(language, block) for language, block in Page(name).blocks() if (name, language) not in taken()]
    assert wrong(nobodys, tmp_path) == []


def test_every_block_of_commands_or_python_is_run_or_left_out_for_a_reason():
    assert not_run(NAMES, taken()) == set(left_out())


def test_blocks_that_are_wrong_are_found(tmp_path):
    blocks = [("c", "int f(int x) { return 0; }\n"), ("cpp", "auto f(\n"), ("python", "def f(:\n"), ("sh", "if true\n")]
    blocks += [("cmake", "f(\n"), ("json", "{,}"), ("yaml", "a: [\n"), ("mermaid", "pie\n"), ("", "?\n")]
    blocks += [("c", "int f(int x) { return x; }\n"), ("text", "(")]
    told = wrong(blocks, tmp_path)
    assert [int(re.match(r"block (\d+)", line)[1]) for line in told] == list(range(1, 10)), told
    assert "known are c, cpp" in told[-1]


def test_commands_that_nobody_takes_are_found():
    assert not_run(["bindings/python/README.md"], {("bindings/python/README.md", "sh")}) == {"bindings/python/README.md python 1"}
    assert not_run(["docs/install.md"], {("docs/install.md", "sh")}) == {"docs/install.md cmake 1"}
    assert not_run(["docs/install.md"], {("docs/install.md", "cmake")}) == {"docs/install.md sh 1", "docs/install.md sh 2"}
