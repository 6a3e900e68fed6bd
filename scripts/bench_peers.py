#!/usr/bin/env python3
"""Lays muster beside Open MPI, Gloo and the yardsticks, on this machine in one go, and writes docs/performance.md.

Every figure lies in target/bench/raw.csv, from which --from-raw makes the page and its picture again; the page's prose is that of
scripts/bench/performance.in.md. The yardsticks' C programs lie in ../shared/bench, or in the folder that YARDSTICKS names; where
they are missing, their columns are.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys

from bench.page import Page
from bench.passes import Plan, Run
from bench.processes import Failed
from bench.programs import BUILT, TREE, build, build_waits, install, version_of
from bench.raw import Raw, Writer

TEMPLATE = TREE / "scripts" / "bench" / "performance.in.md"


def first_match(path, pattern):
    match = re.search(pattern, pathlib.Path(path).read_text(), re.MULTILINE)
    return match[1] if match else "unknown"


def commit():
    words = ["git", "-C", TREE, "describe", "--always", "--dirty"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def facts():
    version = first_match(TREE / "Cargo.toml", r'^version = "(.*)"')
    memory_kib = int(first_match("/proc/meminfo", r"^MemTotal:\s*([0-9]+)"))
    return {
        "date": datetime.date.today().isoformat(),
        "processor": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$"),
        "cores": os.cpu_count(),
        "memory": f"{memory_kib / (1 << 20):.0f} GiB",
        "system": f"Linux {platform.release()}",
        "load": f"{os.getloadavg()[0]:.2f}",
        "muster": f"{version} ({commit()})",
        "openmpi": f"openmpi-bin {version_of('openmpi-bin')}",
        "gloo": f"libgloo-dev {version_of('libgloo-dev')}",
    }


def measure(raw_path, options):
    """Whether all that is ours went well."""
    has_yardsticks = False
    if options.waits:
        build_waits()
    else:
        install()
        has_yardsticks = build()
    if not has_yardsticks and not options.waits:
        print("the yardsticks are not there (YARDSTICKS names their folder): their columns are left out", flush=True)
    raw = Writer(raw_path, facts())
    try:
        run = Run(Plan(options.quick, options.passes), raw, has_yardsticks, options.minutes)
        run.waits_alone() if options.waits else run.go()
    finally:
        raw.close()
    return run.failures == 0


def draw(raw, page):
    """The picture beside the page, by the Python package."""
    picture = page.with_name("performance-allreduce.svg")
    words = ["--out", picture, "--collectives", "allreduce", "--ranks", "2,4,8", raw]
    env = {**os.environ, "PYTHONPATH": str(TREE / "bindings" / "python")}
    done = subprocess.run([sys.executable, "-m", "muster.plot", *words], env=env, capture_output=True, text=True, timeout=180)
    if done.returncode != 0:
        sys.exit(f"bench_peers: {picture} is not drawn anew: {done.stderr.strip()}")
    print(f"{picture} is drawn from {raw}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true",
                        help="few passes, ranks and sizes, to see that all works; the page goes to target/bench")
    parser.add_argument("--passes", type=int, help="how many (9; quick: 2)")
    parser.add_argument("--minutes", type=float, default=26,
                        help="no pass begins that would not end by then (26); the page tells how many there were")
    parser.add_argument("--waits", action="store_true",
                        help="only the small calls beside competitors; figures and page go to target/bench")
    parser.add_argument("--from-raw", action="store_true", help="measures nothing: makes the page again")
    parser.add_argument("--raw", type=pathlib.Path, help="the figures (target/bench/raw.csv)")
    parser.add_argument("--page", type=pathlib.Path, help="the page (docs/performance.md)")
    return parser.parse_args()


def main():
    options = parse()
    raw = options.raw or BUILT / ("waits.csv" if options.waits else "quick.csv" if options.quick else "raw.csv")
    page = options.page or (BUILT / "performance.md" if options.quick or options.waits else TREE / "docs" / "performance.md")
    try:
        went_well = options.from_raw or measure(raw, options)
    except Failed as failure:
        sys.exit(f"bench_peers: {failure}")
    if not raw.exists():
        sys.exit(f"bench_peers: {raw} is not there: measure first")
    page.write_text(Page(Raw(raw)).fill(TEMPLATE.read_text()))
    print(f"{page} is made from {raw}")
    if not options.waits:
        draw(raw, page)
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    main()
