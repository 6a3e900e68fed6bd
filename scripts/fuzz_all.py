#!/usr/bin/env python3
"""Runs the fuzzer on each decoder until each has had so many seconds of processor time, and prints a table of what came of it.

A run that is cut short goes on the next time: what was found stays in the folder, and so do the seconds and executions of each
target, in `<folder>/totals.json`. Ends with exit code 1 if anything was found; what was found lies in `<folder>/<target>-*`.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
SLICE_S = 240  # of each run of the fuzzer, by the clock: then the totals are written
TRIES = 60  # slices for a target: on a machine that is busy with other things one gets little processor time
COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")
EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def targets():
    text = (TREE / "src" / "fuzz" / "mod.rs").read_text()
    table = text.split("pub const TARGETS")[1].split("];")[0]
    return re.findall(r'\("(\w+)", ', table)


class Totals:
    """Per target: processor seconds, executions, coverage, whether something was found."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.rows = json.loads(path.read_text()) if path.exists() else {}

    def seconds(self, target):
        return self.rows.get(target, {}).get("seconds", 0)

    def add(self, target, seconds, executions, coverage, features, found):
        with self.lock:
            row = self.rows.setdefault(target, {"seconds": 0, "executions": 0})
            row["seconds"] += seconds
            row["executions"] += executions
            row["coverage"], row["features"], row["found"] = coverage, features, found
            self.path.write_text(json.dumps(self.rows, indent=1))


class DidNotRun(Exception):
    """The fuzzer could not be started, or said nothing."""


def run_once(target, options, seconds):
    """One run of the fuzzer: processor seconds, executions, coverage, features."""
    corpus = options.folder / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    words = [options.fuzzer, f"-max_total_time={seconds}", "-timeout=60", "-report_slow_units=60", "-rss_limit_mb=2048", "-print_final_stats=1",
             f"-artifact_prefix={options.folder}/{target}-", corpus, options.folder / "seeds" / target]
    log = options.folder / f"{target}.log"
    with log.open("w") as out:
        child = subprocess.Popen([str(word) for word in words], env={**os.environ, "FUZZ_TARGET": target}, stdout=out, stderr=out)
        _, _, usage = os.wait4(child.pid, 0)
    text = log.read_text(errors="replace")
    executions = EXECUTIONS.search(text)
    if not executions:
        raise DidNotRun(f"the fuzzer did not run for {target}: see {log}")
    covered = COVERAGE.findall(text)
    coverage, features = covered[-1] if covered else (0, 0)
    return usage.ru_utime + usage.ru_stime, int(executions[1]), int(coverage), int(features)


def go(target, options, totals):
    """Runs a target for as long as is asked for. Returns why that cannot be, if so."""
    try:
        for _ in range(TRIES):
            left = options.seconds - totals.seconds(target)
            found = [path.name for path in options.folder.glob(f"{target}-*")]
            if left <= 0 or found:
                break
            seconds, *rest = run_once(target, options, int(min(SLICE_S, left + 1)))
            totals.add(target, seconds, *rest, [path.name for path in options.folder.glob(f"{target}-*")])
    except (DidNotRun, OSError) as why:
        return str(why)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fuzzer", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--at-once", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", help="these targets")
    options = parser.parse_args()
    totals = Totals(options.folder / "totals.json")
    names, begun = options.only or targets(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as workers:
        whys = list(filter(None, workers.map(lambda name: go(name, options, totals), names)))
    print("| decoder | processor time | executions | edges reached | findings |\n| --- | --- | --- | --- | --- |")
    for name in names:
        row = totals.rows.get(name, {"seconds": 0, "executions": 0, "coverage": 0, "found": []})
        minutes, millions = row["seconds"] / 60, row["executions"] / 1e6
        print(f"| {name} | {minutes:.0f} min | {millions:.1f} million | {row['coverage']} | {', '.join(row['found']) or 'none'} |")
    print(f"took {(time.monotonic() - begun) / 60:.0f} minutes")
    short = [name for name in names if totals.seconds(name) < options.seconds]
    for why in whys:
        print(why, file=sys.stderr)
    sys.exit(1 if short or any(row["found"] for row in totals.rows.values()) else 0)


if __name__ == "__main__":
    main()
