"""The site that `make docs` builds: nothing in it comes from elsewhere, its links are whole, the reference of C has every name, and a
browser finds words in it without a server. What drawing, reading and building refuse, they refuse in words.

`make test-docs` installs what this needs; without Doxygen, Graphviz or mkdocs it is left out, and without a browser its last test.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from cluster import TREE
from test_doc_links import DOCUMENTS

sys.path.insert(0, str(TREE / "scripts" / "site"))

MKDOCS = pathlib.Path(sys.executable).with_name("mkdocs")
NEEDED = [name for name in ("doxygen", "dot") if shutil.which(name) is None] + ["mkdocs"] * (not MKDOCS.exists())
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LIMIT = 300
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"not here: {', '.join(NEEDED)}; make test-docs installs them")


def build(config, folder):
    return subprocess.run([MKDOCS, "build", "-f", config, "-d", folder], cwd=TREE, capture_output=True, text=True, timeout=LIMIT)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(TREE / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_there_and_can_be_reached(site):
    outside = {"README.md": "index", "ARCHITECTURE.md": "code-map", "CONTRIBUTING.md": "contributing"}
    names = [str(path.relative_to(TREE)) for path in DOCUMENTS]
    places = [outside.get(name) or re.sub(r"README$", "index", name.removeprefix("docs/").removesuffix(".md")) for name in names]
    assert [place for place in places if not (site / f"{place}.html").exists()] == []
    everywhere = "".join(path.read_text() for path in site.rglob("*.html"))
    assert [place for place in places if f'{place.rpartition("/")[2]}.html"' not in everywhere and f"{place}.html#" not in everywhere] == []


def test_nothing_is_loaded_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)="?(https?:|//)[^>]*>|@import|url\(["\']?https?:')
    found = {match.group() for path in site.rglob("*.html") for match in loaded.finditer(path.read_text())}
    assert {tag for tag in found if 'rel="canonical"' not in tag} == set()


def test_every_name_of_the_header_has_its_entry(site):
    text = re.sub(r"/\*.*?\*/", " ", (TREE / "include" / "muster.h").read_text(), flags=re.S)
    functions = re.findall(r"\b(muster_\w+)\s*\([^()]*\)\s*;", text)
    names = {*functions, *re.findall(r"^#define (MUSTER_\w+) ", text, re.M), *re.findall(r"\}\s*(muster_\w+);", text)}
    anchors = {match for path in (site / "reference" / "c").glob("*.html") for match in re.findall(r'<h2 id="(\w+)"', path.read_text())}
    assert len(functions) > 90
    assert sorted(name for name in names if name.lower() not in anchors) == []


def test_names_in_the_pages_lead_to_the_reference(site):
    page = (site / "c-api.html").read_text()
    assert 'href="reference/c/collectives.html#muster_allreduce"><code>muster_allreduce(group, in, out, count, dtype, op)</code>' in page


def test_a_broken_link_ends_the_build_and_is_named(tmp_path):
    docs = tmp_path / "docs"
    shutil.copytree(TREE / "docs", docs)
    (docs / "glossary.md").write_text("# Glossary\n\n[nowhere](nowhere.md) [no part](tutorial.md#nothing)\n")
    config = (TREE / "mkdocs.yml").read_text().replace("docs_dir: docs", f"docs_dir: {docs}")
    for folder in ("scripts/site", "bindings/python"):
        config = config.replace(folder, str(TREE / folder))
    (tmp_path / "mkdocs.yml").write_text(config)
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    assert "'nowhere.md'" in built.stderr and "'tutorial.md#nothing'" in built.stderr


def test_a_name_without_documentation_is_refused(tmp_path):
    import c_reference

    for folder in ("scripts/site", "src/ffi", "include"):
        shutil.copytree(TREE / folder, tmp_path / folder)
    header = tmp_path / "include" / "muster.h"
    header.write_text(header.read_text().replace("/** The library's version", "/* The library's version"))
    with pytest.raises(ValueError, match="muster_version.*not documented"):
        c_reference.pages(tmp_path, tmp_path / "target")


def test_a_picture_that_cannot_be_drawn_is_refused():
    import diagrams

    drawn = diagrams.to_dot('flowchart TD\n    a["the a"] --> b & c\n')
    assert '"a" [label="the a"]; "b" [label="b"]; "c" [label="c"]; "a" -> "b"; "a" -> "c"' in drawn
    with pytest.raises(ValueError, match="sequenceDiagram"):
        diagrams.to_dot("sequenceDiagram\n    a->>b: hello\n")
    with pytest.raises(ValueError, match="a -.-> b"):
        diagrams.to_dot("flowchart TD\n    a -.-> b\n")


def test_what_belongs_to_an_item_stays_there():
    import markdown

    import hooks

    page = "1. one\n\n   more of it\n\n10. ten\n\n    of ten\n\n    - inner\n      goes on\n\nafter\n"
    html = markdown.markdown(hooks.indented(page))
    assert re.sub(r"\s+", "", html) == (
        "<ol><li><p>one</p><p>moreofit</p></li><li><p>ten</p><p>often</p><ul><li>innergoeson</li></ul></li></ol><p>after</p>"
    )


@pytest.mark.skipif(BROWSER is None, reason="no browser here")
def test_a_browser_finds_a_function_without_a_server(site, tmp_path):
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom"]
    shown = subprocess.run([BROWSER, *words, f"file://{site}/index.html?q=sendrecv"], capture_output=True, text=True, timeout=LIMIT).stdout
    found = re.findall(r'href="[^"]*(reference/c/messages\.html[^"]*)" class="md-search-result__link"', shown)
    assert "reference/c/messages.html?h=sendrecv#muster_sendrecv" in found[:2]
