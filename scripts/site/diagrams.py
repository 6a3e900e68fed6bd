"""The pictures in the pages: a flowchart in Mermaid's words, drawn by Graphviz, so that the site needs no script for it.

It knows as much of Mermaid as the pages use: boxes with labels, and arrows between them. A line that it does not know is an error.
"""

import re
import subprocess

BOX = re.compile(r'(\w+)(?:\["([^"]+)"\])?')
STYLE = 'rankdir={}; node [shape=box, style=rounded, fontname="DejaVu Sans", fontsize=11, margin="0.15,0.08"]; edge [arrowsize=0.7]; '


def draw(source, language, css_class, options, md, **more):
    """What a block of this language becomes in the page; the arguments are those that pymdownx.superfences passes."""
    dot = subprocess.run(["dot", "-Tsvg"], input=to_dot(source), capture_output=True, text=True, check=True)
    svg = dot.stdout[dot.stdout.index("<svg"):]
    svg = re.sub(r'(stroke|fill)="black"', r'\1="currentColor"', svg).replace("<text ", '<text fill="currentColor" ')
    return f'<div class="diagram">{re.sub(r"<title>.*?</title>", "", svg)}</div>'


def to_dot(source):
    first, *lines = [line.strip() for line in source.strip().splitlines()]
    direction = re.fullmatch(r"flowchart (TD|LR)", first)
    if direction is None:
        raise ValueError(f"a picture begins with {first!r}; diagrams.py knows `flowchart TD` and `flowchart LR`")
    boxes, arrows = {}, []
    for line in lines:
        steps = [[box(word, boxes, line) for word in step.split(" & ")] for step in line.split(" --> ")]
        arrows += [(one, other) for here, there in zip(steps, steps[1:]) for one in here for other in there]
    words = [f'"{name}" [label="{label or name}"]' for name, label in boxes.items()] + [f'"{one}" -> "{other}"' for one, other in arrows]
    return f"digraph {{ {STYLE.format({'TD': 'TB', 'LR': 'LR'}[direction[1]])}{'; '.join(words)} }}"


def box(word, boxes, line):
    """Its name; the label is given once, wherever that is."""
    match = BOX.fullmatch(word.strip())
    if match is None:
        raise ValueError(f"a picture has the line {line!r}, which diagrams.py does not know")
    boxes[match[1]] = match[2] or boxes.get(match[1])
    return match[1]
