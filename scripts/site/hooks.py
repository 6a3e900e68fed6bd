"""What the site has beside the pages of docs, and how their links fit it. mkdocs calls the functions that begin with `on_`.

- The pages outside of docs (README.md is the first of the site), the files to which pages link, and the references of C and Python
  become pages of the site.
- Links in the pages are those of the repository. Here each becomes one of the site; one that leads nowhere is an error of mkdocs.
- The name of a function, type or constant of the C API, wherever a page has it in code font, leads to its entry in the reference.
"""

import pathlib
import posixpath
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import c_reference  # noqa: E402
import diagrams  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
# Pages outside of docs, and their places in the site.
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "code-map.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples/index.md",
    "examples/train_digits/data/README.md": "examples/train_digits/data/index.md",
    "include/muster.h": "reference/c/index.md",
}
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
ITEM = re.compile(r"( *)([-*]|\d+\.) +")
TOKEN = re.compile(r"<a\b.*?</a>|<h\d\b.*?</h\d>|<pre\b.*?</pre>|<code>(\w+)(\([\w, ]*\))?</code>", re.S)
LANGUAGES = {"c": "c", "h": "c", "cpp": "cpp", "hpp": "cpp", "py": "python", "md": "markdown", "sh": "sh", "Makefile": "make"}
# What the search thinks of a page.
FIRST_FOUND, NOT_FOUND = "---\nsearch:\n  boost: 3\n---\n", "---\nsearch:\n  exclude: true\n---\n"
C, PYTHON = "reference/c", "reference/python"


class Site:
    """What is found out once a build: the reference of C, and for each page of the site where it lies in the repository."""

    def __init__(self):
        self.c = c_reference.pages(ROOT, ROOT / "target" / "doxygen")
        self.origin = {place: name for name, place in OUTSIDE.items()}
        self.sources = {}


site = None


def on_config(config):
    global site
    site = Site()
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "mermaid", "class": "diagram", "format": diagrams.draw}]
    }
    entries = [{title: f"{C}/{file}"} for file, title in site.c.titles.items()]
    nav_section(config.nav, "Reference").append({"C": entries})
    if python_modules():
        nav_section(config.nav, "Reference").append({"Python": [{name: f"{PYTHON}/{name}.md"} for name in python_modules()]})
    return config


def nav_section(nav, title):
    return next(entry[title] for entry in nav if title in entry)


def python_modules():
    """The modules that users import: those whose names have no underscore in front."""
    package = ROOT / "bindings" / "python" / "muster"
    names = sorted(path.stem for path in package.glob("*.py") if not path.stem.startswith("_"))
    return ["muster", *(f"muster.{name}" for name in names)] if (package / "__init__.py").exists() else []


def on_files(files, config):
    def add(place, text):
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=text))

    pages = {f"docs/{file.src_uri}": ROOT / "docs" / file.src_uri for file in files.documentation_pages()}
    for name, place in OUTSIDE.items():
        if name.endswith(".md"):
            add(place, (ROOT / name).read_text())
            pages[name] = ROOT / name
    for file, text in site.c.pages.items():
        add(f"{C}/{file}", FIRST_FOUND + text)
    for name in python_modules():
        add(f"{PYTHON}/{name}.md", f"{FIRST_FOUND}# `{name}`\n\n::: {name}\n")
    for name, path in pages.items():
        for link, _ in LINK.findall(CODE.sub("", path.read_text())):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
            if not re.match(r"[a-z]+:", link) and target not in pages and target not in OUTSIDE and (ROOT / target).exists():
                source_page(target, add)
    return files


def source_page(target, add):
    """A folder that has a page is that page. Another one, or a file, becomes a page that shows what is in it."""
    path = ROOT / target
    if path.is_dir() and (path / "README.md").exists():
        return
    place = f"source/{target}.md"
    found = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    blocks = []
    for file in found:
        language = LANGUAGES.get(file.suffix[1:] or file.name, "text")
        blocks.append(f'````{language} title="{file.relative_to(ROOT)}"\n{file.read_text()}\n````\n')
    add(place, f"{NOT_FOUND}# `{target}`\n\n" + "\n".join(blocks))
    site.sources[target] = place


def place_of(target):
    """Where the site has what lies there in the repository; None if it has it nowhere."""
    if target in OUTSIDE or target in site.sources:
        return OUTSIDE.get(target) or site.sources[target]
    if (ROOT / target).is_dir():
        return place_of(f"{target}/README.md") if (ROOT / target / "README.md").exists() else None
    return target.removeprefix("docs/") if target.startswith("docs/") else None


def on_page_markdown(markdown, page, config, files):
    place = page.file.src_uri
    if place.startswith((C, PYTHON, "source/")):
        return markdown
    name = site.origin.get(place, f"docs/{place}")

    def led(match):
        link, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", link):
            return match[0]
        target = place_of(posixpath.normpath(posixpath.join(posixpath.dirname(name), link)))
        return match[0] if target is None else posixpath.relpath(target, posixpath.dirname(place) or ".") + anchor

    markdown = indented(markdown)
    parts, end = [], 0
    for code in CODE.finditer(markdown):
        parts += [LINK.sub(led, markdown[end:code.start()]), code[0]]
        end = code.end()
    return "".join(parts) + LINK.sub(led, markdown[end:])


def indented(markdown):
    """The same text, with what belongs to an item of a list four columns further in than the item. A forge, and a reader, take what
    stands below the item's first letter; Python-Markdown wants four columns whatever the item begins with."""
    lines, columns, fenced = [], [], False
    for line in markdown.split("\n"):
        fenced ^= line.startswith("```")
        indent, item = len(line) - len(line.lstrip()), ITEM.match(line)
        if not fenced and line.strip():
            while columns and indent < columns[-1]:
                columns.pop()
            line = " " * (4 * len(columns) - (columns[-1] if columns else 0)) + line
            if item:
                columns.append(len(item[0]))
        lines.append(line)
    return "\n".join(lines)


def on_page_content(content, page, config, files):
    def led(match):
        where = site.c.where.get(match[1] or "")
        if where is None:
            return match[0]
        file, _, anchor = where.partition("#")
        url = posixpath.relpath(f"{C}/{file.removesuffix('.md')}.html", posixpath.dirname(page.file.src_uri) or ".")
        return f'<a class="name" href="{url}#{anchor}">{match[0]}</a>'

    return TOKEN.sub(led, content)
