"""docs/c-api.md is held to include/muster.h: it has every function, no name that is not there, and a program that works."""

import re
import subprocess

from cluster import TREE, clean_environment
from pages import STRICT, Page

# The page's names in code font: a function alone, or with the names of its arguments.
NAMED = re.compile(r"`(muster_\w+)(?:\(([^`]*)\))?`")


def header():
    """The header without its comments."""
    text = (TREE / "include" / "muster.h").read_text()
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def functions():
    """Every function that the header declares, with the names of its arguments."""
    found = {}
    for name, arguments in re.findall(r"\b(muster_\w+)\s*\(([^()]*)\)\s*;", header()):
        words = [] if arguments.strip() == "void" else arguments.split(",")
        found[name] = [re.search(r"\w+$", word.strip()).group() for word in words]
    return found


def page():
    return (TREE / "docs" / "c-api.md").read_text()


def test_the_headers_functions_are_those_that_the_library_exports():
    assert sorted(functions()) == (TREE / "abi" / "symbols.txt").read_text().split()


def test_every_function_of_the_header_stands_in_the_page():
    named = {name for name, _ in NAMED.findall(page())}
    assert sorted(set(functions()) - named) == []


def test_a_function_that_stands_with_arguments_has_the_headers():
    declared = functions()
    with_arguments = [match for match in NAMED.finditer(page()) if match.group(2) is not None]
    wrong = [
        f"{match.group()}: ({', '.join(declared.get(match.group(1), ['no such function']))})"
        for match in with_arguments
        if declared.get(match.group(1)) != [word for word in match.group(2).split(", ") if word]
    ]
    assert with_arguments and wrong == []


def test_every_name_of_the_page_is_in_the_header():
    types = set(re.findall(r"\}\s*(muster_\w+)\s*;", header()))
    types |= set(re.findall(r"\(\*(muster_\w+)\)", header()))
    types |= set(re.findall(r"\btypedef\s+[^;{(]*\b(muster_\w+)\s*;", header()))
    names = set(re.findall(r"\bmuster_\w+", page()))
    assert sorted(names - set(functions()) - types) == []


def test_every_constant_of_the_page_is_in_the_header():
    constants = set(re.findall(r"^#define\s+(MUSTER_\w+)[ \t]+\S", header(), re.M))
    assert sorted(set(re.findall(r"\bMUSTER_\w*", page())) - constants) == []


def test_the_program_of_the_page_works_when_pasted(tmp_path):
    source, = Page("docs", "c-api.md").programs
    assert 25 <= len(source.splitlines()) <= 40
    (tmp_path / "program.c").write_text(source)
    release = TREE / "target" / "release"
    link = [f"-I{TREE / 'include'}", f"-L{release}", "-lmuster", f"-Wl,-rpath,{release}"]
    subprocess.run(["cc", *STRICT, "program.c", "-o", "program", *link], cwd=tmp_path, check=True, timeout=60)

    alone = subprocess.run(
        ["./program"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=60
    )
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "rank 0 of 1: 0.5 1.5 2.5\n", "")
