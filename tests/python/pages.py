"""Programs and commands of the documents, pasted as a reader does it.

A test takes a page's blocks of one language, all at once, and unpacks them by name: a new block stops it. `Page.taken` knows which
were taken, and test_code_blocks.py finds those that nobody takes. Of a page that several tests share, each takes a section.
"""

import re
import subprocess

from cluster import TREE, Process

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
STRICT = ["-std=c99", *WARNINGS]
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.S | re.M)


class Page:
    """`programs`, `commands` and `outputs` are the blocks of C, of the shell, and of what is printed, in order."""

    taken = set()
    taken_blocks = set()

    def __init__(self, *name):
        self.name = "/".join(name)
        self.text = TREE.joinpath(*name).read_text()

    def blocks(self):
        """All of them: language and text."""
        return [(language, re.sub(f"^{indent}", "", text, flags=re.M)) for indent, language, text in BLOCK.findall(self.text)]

    def of(self, language):
        Page.taken.add((self.name, language))
        return [text for found, text in self.blocks() if found == language]

    def section(self, title, language):
        """Those under this heading, and no other; test_code_blocks.py still looks for the others."""
        begin = re.search(f"^#+ {re.escape(title)}$", self.text, re.M).end()
        end = re.compile("^#+ ", re.M).search(self.text, begin)
        before, inside = (sum(found == language for _, found, _ in BLOCK.findall(text))
                          for text in (self.text[:begin], self.text[begin:end and end.start()]))
        numbers = range(before, before + inside)
        Page.taken_blocks.update(f"{self.name} {language} {number + 1}" for number in numbers)
        all_of_them = [text for found, text in self.blocks() if found == language]
        return [all_of_them[number] for number in numbers]

    @property
    def programs(self):
        return self.of("c")

    @property
    def commands(self):
        return self.of("sh")

    @property
    def outputs(self):
        return self.of("text")


def prepare(folder, **programs):
    """A folder that has of the source tree what the commands need, and these programs; what they leave there can be seen."""
    for name in ("include", "target"):
        (folder / name).symlink_to(TREE / name)
    for name, text in programs.items():
        (folder / f"{name}.c").write_text(text)
    return folder


def compiles(folder, name, *flags):
    """Without a warning."""
    subprocess.run(["cc", *STRICT, *flags, "-fsyntax-only", "-Iinclude", f"{name}.c"], cwd=folder, check=True, timeout=60)


def paste(commands, folder, port):
    """A shell that runs them, with a port that nobody else has."""
    return Process(["bash", "-euo", "pipefail", "-c", commands.replace("8118", str(port))], name="shell", cwd=folder)
