"""The image's recipe, deploy/kubernetes/Containerfile, read as a program that builds it reads it."""

import re

from cluster import TREE

RECIPE = TREE / "deploy" / "kubernetes" / "Containerfile"


def steps():
    """Its instructions, in order: kind and words."""
    text = re.sub(r"^#.*\n", "", RECIPE.read_text(), flags=re.M).replace("\\\n", "")
    return [line.split(None, 1) for line in text.splitlines() if line]


def copied():
    """What it takes from the tree: files or folders, and where to."""
    for kind, words in steps():
        if kind == "COPY" and "--from=build" not in words:
            *sources, place = words.split()
            yield from ((source, f"{place}{source}" if place.endswith("/") else place) for source in sources)


def commands():
    """What it runs to build."""
    return [words for kind, words in steps() if kind == "RUN"]
