#!/usr/bin/env python3
"""Lays muster beside Open MPI, MPICH, Intel MPI, Gloo and the yardsticks, on this machine, and writes docs/performance.md.

Every figure lies in target/bench/raw.csv, from which --from-raw makes the pages and pictures again: docs/performance.md by
scripts/bench/performance.in.md, and the pages of docs/measurements by those of scripts/bench/measurements. The yardsticks' C programs
lie in ../shared/bench, or in the folder that YARDSTICKS names; where they are missing, their columns are.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys

from bench import memory, programs
from bench.page import NAMES as TCP_NAMES
from bench.page import Page
from bench.page_memory import NAMES as MEMORY_NAMES
from bench.passes import PARTS, Plan, Run
from bench.processes import Failed
from bench.programs import BUILT, TREE, fetch_mpi, version_of
from bench.raw import Raw, Writer

TEMPLATE = TREE / "scripts" / "bench" / "performance.in.md"
MEASUREMENTS = TREE / "scripts" / "bench" / "measurements"


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
        "mpich": f"mpich {version_of('mpich')}",
        "intelmpi": " ".join(fetch_mpi.WHEELS["Intel MPI"][1]),
        "gloo": f"libgloo-dev {version_of('libgloo-dev')}",
    }


def prepare(parts):
    """Installs and builds what these parts need; the programs that are there."""
    there = set()
    programs.check_build()
    if {"tcp", "start"} & set(parts):
        programs.install()
        programs.build_tcp()
    if {"tcp", "start", "forming"} & set(parts) and programs.build_yardsticks(programs.YARDSTICKS):
        there.add("yardstick")
    if "waits" in parts:
        programs.build_waits()
    if {"memory", "exact"} & set(parts):
        programs.build_muster_peer()
    if "memory" in parts:
        peers, missing = memory.install()
        for peer, why in missing.items():
            print(f"{peer} is left out: {why}", flush=True)
        memory.build(peers)
        there.update(peers)
        if programs.build_yardsticks([programs.MEMORY_YARDSTICK]):
            there.add(programs.MEMORY_YARDSTICK)
    needed = {"yardstick": {"tcp", "start", "forming"}, programs.MEMORY_YARDSTICK: {"memory"}}
    for name in (name for name, of in needed.items() if name not in there and of & set(parts)):
        print(f"{name} is not there (YARDSTICKS names the folder): its columns are left out", flush=True)
    return there


def measure(raw_path, options):
    """Whether all that is ours went well."""
    there = prepare(options.only)
    raw = Writer(raw_path, facts())
    try:
        minutes = options.minutes or (17 if options.quick else 115)
        run = Run(Plan(options.quick, options.passes, options.only, options.ranks), raw, there, minutes)
        run.go()
    finally:
        raw.close()
    return run.failures == 0


def pages(raw, docs):
    """The page for users, and the measurements behind it."""
    page = Page(Raw(raw))
    for template in [TEMPLATE, *sorted(MEASUREMENTS.glob("*.in.md"))]:
        folder = docs if template == TEMPLATE else docs / "measurements"
        made = folder / template.name.replace(".in.md", ".md")
        folder.mkdir(parents=True, exist_ok=True)
        made.write_text(page.fill(template.read_text()))
        print(f"{made} is made from {raw}")


def draw(raw, docs):
    """The pictures beside the pages, by the Python package; the names of programs are ours."""
    sys.path.insert(0, str(TREE / "bindings" / "python"))
    from muster import plot

    tables = {"performance-allreduce.svg": (TCP_NAMES, "2,4,8"), "performance-memory.svg": (MEMORY_NAMES, "2,4,8")}
    for name, (programs_names, ranks) in tables.items():
        if not any(row["program"] in programs_names and row["collective"] == "allreduce" for row in Raw(raw).rows):
            continue
        plot.PROGRAMS = programs_names
        plot.main(["--out", str(docs / name), "--collectives", "allreduce", "--ranks", ranks, str(raw)])
        print(f"{docs / name} is drawn from {raw}")


def part_names(word):
    parts = word.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no part: expected some of {', '.join(PARTS)}, as in tcp,memory")
    return tuple(parts)


def rank_numbers(word):
    try:
        return [int(number) for number in word.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r}: expected numbers of ranks, as in 2,8") from None


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true",
                        help="few passes, ranks and sizes, to see that all works; the pages go to target/bench/docs")
    parser.add_argument("--passes", type=int, help="how many (9; quick: 2)")
    parser.add_argument("--minutes", type=float,
                        help="no turn begins that would not end by then (115; quick: 17); the page tells how many passes there were")
    parser.add_argument("--only", type=part_names, metavar="PART,...",
                        help=f"only these parts of {', '.join(PARTS)}; figures and pages go to target/bench")
    parser.add_argument("--ranks", type=rank_numbers, metavar="N,...",
                        help="only these numbers of ranks, of tcp, memory and exact; figures and pages go to target/bench")
    parser.add_argument("--from-raw", action="store_true", help="measures nothing: makes the pages again")
    parser.add_argument("--raw", type=pathlib.Path, help="the figures (target/bench/raw.csv)")
    parser.add_argument("--docs", type=pathlib.Path, help="where the pages go (docs)")
    return parser.parse_args()


def main():
    options = parse()
    is_part = options.only is not None or options.ranks is not None
    options.only = options.only or PARTS
    raw = options.raw or BUILT / ("quick.csv" if options.quick else "part.csv" if is_part else "raw.csv")
    docs = options.docs or (BUILT / "docs" if options.quick or is_part else TREE / "docs")
    try:
        went_well = options.from_raw or measure(raw, options)
    except Failed as failure:
        sys.exit(f"bench_peers: {failure}")
    if not raw.exists():
        sys.exit(f"bench_peers: {raw} is not there: measure first")
    pages(raw, docs)
    draw(raw, docs)
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    main()
