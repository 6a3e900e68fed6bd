#!/usr/bin/env python3
"""Lays the Python package down as its wheel would, but without the library, which is a package of its own:
dist_info.py <source> <version> <folder of packages>. Entry points are those of pyproject.toml."""

import pathlib
import shutil
import sys
import tomllib

source, version, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
name = project["name"]
shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "lib", "bin"), dirs_exist_ok=True)
info = folder / f"{name}-{version}.dist-info"
info.mkdir(parents=True, exist_ok=True)
(info / "METADATA").write_text(
    f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {project['description']}\nRequires-Python: {project['requires-python']}\n")
groups = project.get("entry-points", {})
if groups:
    (info / "entry_points.txt").write_text("\n".join(
        f"[{group}]\n" + "".join(f"{entry} = {target}\n" for entry, target in entries.items()) for group, entries in groups.items()))
