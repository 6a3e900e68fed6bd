"""The reference of the C API, as pages in Markdown: Doxygen reads include/muster.h, and this writes down what it found.

Each file of src/ffi becomes a page, in the order in which the header has its functions. A name that has no documentation, and a
name that no file of src/ffi declares, are errors.
"""

import html
import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree

NAME = re.compile(r"\b((?:muster|MUSTER)_\w+)\b(?:\(\))?")
STATUSES, CONSTANTS, TYPES = ("statuses", "Statuses"), ("constants", "Other constants"), ("types", "Types")
WIDTH = 92


class Entry:
    """A function, type or constant: its name, how it is declared, and what is said of it."""

    def __init__(self, element, page):
        self.kind = element.get("kind")
        self.name = element.findtext("name") or element.findtext("compoundname")
        self.page = page
        self.said = element.find("detaileddescription")
        self.members = [(declared(member), member.find("detaileddescription")) for member in element.findall("./sectiondef/memberdef")]
        self.declaration = self.declared(element)
        for said in (self.said, *(said for _, said in self.members)):
            if said is None or not "".join(said.itertext()).strip():
                raise ValueError(f"include/muster.h: {self.name} has no documentation, or one of its members has none")

    def declared(self, element):
        if self.kind == "define":
            return f"#define {self.name} {element.findtext('initializer')}"
        if self.kind == "struct":
            return "typedef struct {\n" + "".join(f"    {member};\n" for member, _ in self.members) + f"}} {self.name};"
        if self.kind == "typedef":
            return element.findtext("definition") + ";"
        return wrapped(f"{declared(element)}(", [declared(argument) for argument in element.findall("param")])


def declared(element):
    """A type and its name, as they stand in C: the star stands at the name."""
    name = element.findtext("name") or element.findtext("declname") or ""
    words = f"{flat(element.find('type'))} {name}{element.findtext('argsstring') or '' if element.get('kind') == 'variable' else ''}"
    return re.sub(r"\* ", "*", words.strip())


def flat(element):
    return "".join(element.itertext())


def wrapped(head, arguments):
    line = f"{head}{', '.join(arguments) or 'void'});"
    return line if len(line) <= WIDTH else head + "".join(f"\n    {argument}," for argument in arguments)[:-1] + ");"


def read(root, folder):
    """What Doxygen found in the header: the words of its head, and the entries in the order in which they stand there."""
    folder.mkdir(parents=True, exist_ok=True)
    doxyfile = (root / "scripts" / "site" / "Doxyfile").read_text() + f'OUTPUT_DIRECTORY = "{folder}"\n'
    ended = subprocess.run(["doxygen", "-"], input=doxyfile, cwd=root, capture_output=True, text=True)
    if ended.returncode != 0:
        raise ValueError(f"doxygen:\n{ended.stderr}")
    header = ElementTree.parse(folder / "xml" / "muster_8h.xml").find("compounddef")
    structs = [ElementTree.parse(path).find("compounddef") for path in sorted((folder / "xml").glob("struct*.xml"))]
    elements = [element for element in [*header.iter("memberdef"), *structs] if element.findtext("name") != "MUSTER_H"]
    elements.sort(key=lambda element: int(element.find("location").get("line")))
    files = declared_in(root / "src" / "ffi")
    return header.find("detaileddescription"), [Entry(element, page_of(element, files)) for element in elements]


def declared_in(folder):
    """Each function of the ABI, and the file that has it, by name and by what its head says."""
    found = {}
    for path in sorted(folder.glob("*.rs")):
        text = path.read_text()
        head = " ".join(re.findall(r"^//! ?(.*)$", text.partition("\n\n")[0], re.M))
        for name in re.findall(r"\bfn (muster_\w+)", text):
            found[name] = (path.stem, head)
    return found


def page_of(element, files):
    """The page's file, and its title."""
    name, kind = element.findtext("name") or element.findtext("compoundname"), element.get("kind")
    if kind == "define":
        status = name.startswith("MUSTER_ERR_") or name in ("MUSTER_OK", "MUSTER_IN_PROGRESS", "MUSTER_SCHEDULER_DONE")
        return STATUSES if status else CONSTANTS
    if kind in ("struct", "typedef"):
        return TYPES
    if name not in files:
        raise ValueError(f"include/muster.h has {name}, but no file of src/ffi declares it by that name")
    stem, head = files[name]
    return stem, re.split(r"[,:;.]", head)[0].replace("`", "")


class Reference:
    """`pages` has each page's text by its file's name, `titles` its title, and `where` the page and anchor of each name."""

    def __init__(self, root, folder):
        head, entries = read(root, folder)
        self.where = {entry.name: f"{entry.page[0]}.md#{entry.name.lower()}" for entry in entries}
        self.titles = {"index.md": "Overview"}
        for stem, title in [*(entry.page for entry in entries if entry.kind == "function"), TYPES, STATUSES, CONSTANTS]:
            self.titles.setdefault(f"{stem}.md", title)
        self.pages = {"index.md": self.overview(head, entries)}
        for file, title in list(self.titles.items())[1:]:
            own = [entry for entry in entries if f"{entry.page[0]}.md" == file]
            self.pages[file] = f"# {title}\n\n" + "\n".join(self.entry(entry) for entry in own)

    def overview(self, head, entries):
        lines = ["# The C API: reference\n"]
        lines.append("Made from `include/muster.h`. The [map](../../c-api.md) says how the parts belong together.\n")
        lines.append(self.blocks([block for block in head if block.find("itemizedlist") is not None]))
        for file, title in list(self.titles.items())[1:]:
            names = " ".join(f"[`{entry.name}`]({self.where[entry.name]})" for entry in entries if f"{entry.page[0]}.md" == file)
            lines.append(f"## {title}\n\n{names}\n")
        return "\n".join(lines)

    def entry(self, entry):
        lines = [f"## `{entry.name}` {{ #{entry.name.lower()} }}\n", f"```c\n{entry.declaration}\n```\n"]
        lines.append(self.blocks(entry.said, entry.name))
        if entry.kind == "struct":
            rows = (f"| `{name}` | {self.blocks(said, entry.name).replace(chr(10), ' ').strip()} |" for name, said in entry.members)
            lines.append("| member | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n")
        return "\n".join(lines)

    def blocks(self, found, own=""):
        """Paragraphs and lists."""
        written = []
        for block in found:
            if block.tag == "para":
                lists = [child for child in block if child.tag == "itemizedlist"]
                words = self.words(block, own).strip()
                written += [words] * bool(words)
                for listed in lists:
                    items = (self.blocks(item, own).strip().replace("\n", "\n    ") for item in listed)
                    written.append("\n".join(f"- {item}" for item in items))
            else:
                raise ValueError(f"include/muster.h: a {block.tag} in the documentation, which c_reference.py does not know")
        return re.sub(r"^Requires: ", "**Requires:** ", "\n\n".join(written) + "\n", flags=re.M)

    def words(self, element, own):
        written = self.linked(element.text, own)
        for child in element:
            if child.tag == "computeroutput":
                text = flat(child)
                written += f"[`{text}`]({self.where[text]})" if text in self.where and text != own else f"`{text}`"
            elif child.tag == "ref":
                written += self.linked(flat(child), own)
            elif child.tag != "itemizedlist":
                raise ValueError(f"include/muster.h: a {child.tag} in the documentation, which c_reference.py does not know")
            written += self.linked(child.tail, own)
        return written

    def linked(self, text, own):
        """Text as Markdown, where each known name leads to its entry."""
        text, written, end = text or "", "", 0
        for match in NAME.finditer(text):
            name = match[1]
            written += plain(text[end:match.start()])
            written += f"[`{name}`]({self.where[name]})" if name in self.where and name != own else f"`{name}`"
            end = match.end()
        return written + plain(text[end:])


def plain(text):
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))


def pages(root, folder):
    return Reference(pathlib.Path(root), pathlib.Path(folder))
