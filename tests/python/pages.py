"""Programs and commands of the documents, pasted as a reader does it."""

import re
import subprocess

from cluster import TREE, Process

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


class Page:
    """`programs`, `commands` and `outputs` are the blocks of C, of the shell, and of what is printed, in order."""

    def __init__(self, *name):
        self.text = TREE.joinpath(*name).read_text()
        self.programs = re.findall(r"```c\n(.*?)```", self.text, re.S)
        self.commands = re.findall(r"```sh\n(.*?)```", self.text, re.S)
        self.outputs = re.findall(r"```text\n(.*?)```", self.text, re.S)


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
