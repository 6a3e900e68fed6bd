#!/usr/bin/env python3
"""Runs the unit tests, the C tests and the Python tests several times beside busy loops of the same priority, three at a time:
nothing here may depend on being scheduled promptly. Lints and loom are not run.

    scripts/under_load.py [--loops N] [--times N] [--streams N] [JOB ...]

A job is `unit`, `ctest` or the name of a file of tests/python. What they print lies in target/under_load. Exit code 0: all
passed each time.
"""

import argparse
import ctypes
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
FOLDER = TREE / "target" / "under_load"
PR_SET_PDEATHSIG = 1
# Those that take longest begin first, so that no stream ends long after the others.
LONGEST = ("ctest", "unit", "test_run", "test_breaking", "test_hosts", "test_many_nodes", "test_launchers")


def busy_loop():
    """The pid of a child that computes until this process is gone."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        while os.getppid() == parent:
            for _ in range(1_000_000):
                pass
        os._exit(0)
    return pid


def commands(ctest, python):
    """What each job runs."""
    jobs = {"ctest": [ctest, "--test-dir", TREE / "target" / "cmake" / "ctests", "--output-on-failure", "--no-tests=error"],
            "unit": ["cargo", "test", "--lib", "--bins"]}
    for file in (TREE / "tests" / "python").glob("test_*.py"):
        jobs[file.stem] = [python, "-m", "pytest", file]
    order = {name: place for place, name in enumerate(LONGEST)}
    return {name: jobs[name] for name in sorted(jobs, key=lambda name: (order.get(name, len(order)), name))}


def run_job(name, command, folder, running):
    """Its exit code and how many seconds it took."""
    begun = time.monotonic()
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen([str(word) for word in command], cwd=TREE, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        running.append(process)
        code = process.wait()
    return code, time.monotonic() - begun


def one_pass(number, jobs, streams, running):
    """The names of the jobs that failed."""
    folder = FOLDER / f"pass-{number}"
    folder.mkdir(parents=True)
    waiting, failed = queue.SimpleQueue(), []
    for job in jobs.items():
        waiting.put(job)

    def work():
        while True:
            try:
                name, command = waiting.get_nowait()
            except queue.Empty:
                return
            code, seconds = run_job(name, command, folder, running)
            print(f"pass {number}: {name}: {'passed' if code == 0 else f'FAILED with {code}'} after {seconds:.0f} s", flush=True)
            if code != 0:
                failed.append(name)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def options(known):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=20, help="busy loops")
    parser.add_argument("--times", type=int, default=3, help="how often all jobs run")
    parser.add_argument("--streams", type=int, default=3, help="jobs at a time")
    parser.add_argument("--ctest", default="ctest", help="the program")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="default: all")
    given = parser.parse_args()
    if min(given.loops + 1, given.times, given.streams) < 1:
        parser.error("--loops must be 0 or more, --times and --streams 1 or more")
    unknown = sorted(set(given.jobs) - set(known))
    if unknown:
        parser.error(f"there is no job {', '.join(unknown)}; jobs are {', '.join(known)}")
    return given


def main():
    given = options(commands("", ""))
    jobs = commands(given.ctest, sys.executable)
    if given.jobs:
        jobs = {name: jobs[name] for name in given.jobs}
    shutil.rmtree(FOLDER, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    running = []
    loops = [busy_loop() for _ in range(given.loops)]
    try:
        failed = [f"{name} (pass {number})" for number in range(1, given.times + 1)
                  for name in one_pass(number, jobs, given.streams, running)]
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
        for pid in loops:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    print(f"beside {given.loops} busy loops, {given.times} times: {'FAILED: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
