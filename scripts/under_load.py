#!/usr/bin/env python3
"""Runs the unit tests, the C tests and the Python tests several times beside busy loops of the same priority, three at a time:
nothing here may depend on being scheduled promptly. Lints and loom are not run.

    scripts/under_load.py [--loops N] [--times N] [--streams N] [JOB ...]

A job is `unit`, `ctest` or the name of a file of tests/python. What they print lies in target/under_load. Exit code 0: all
passed each time.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
FOLDER = TREE / "target" / "under_load"


def busy_loop():
    """The pid of a child that computes until this process is gone."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setsid()  # Linux may share processors among sessions first, and what the tests start has sessions of its own
        while os.getppid() == parent:
            for _ in range(1_000_000):
                pass
        os._exit(0)
    return pid


def commands(ctest, python):
    """What each job runs. Those that take longest begin first, so that no stream ends long after the others."""
    jobs = {"ctest": [ctest, "--test-dir", TREE / "target" / "cmake" / "ctests", "--output-on-failure", "--no-tests=error"],
            "unit": ["cargo", "test", "--lib", "--bins"]}
    return jobs | {file.stem: [python, "-m", "pytest", file] for file in sorted((TREE / "tests" / "python").glob("test_*.py"))}


def run_job(number, name, command, running):
    """The job with its pass, if it failed."""
    log = FOLDER / f"pass-{number}" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with open(log, "wb") as file:
        process = subprocess.Popen([str(word) for word in command], cwd=TREE, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                   start_new_session=True)  # so that what it runs ends with it
        running.append(process)
        code = process.wait()
    ended = "passed" if code == 0 else f"FAILED with {code}"
    print(f"pass {number}: {name}: {ended} after {time.monotonic() - begun:.0f} s", flush=True)
    return [] if code == 0 else [f"{name} (pass {number})"]


def options(known):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=20, help="busy loops")
    parser.add_argument("--times", type=int, default=3, help="how often all jobs run")
    parser.add_argument("--streams", type=int, default=3, help="jobs at a time")
    parser.add_argument("--ctest", default="ctest", help="the program")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="default: all")
    given = parser.parse_args()
    if given.loops < 0 or given.times < 1 or given.streams < 1:
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
    pool = concurrent.futures.ThreadPoolExecutor(given.streams)
    try:
        results = [pool.submit(run_job, number, name, command, running)
                   for number in range(1, given.times + 1) for name, command in jobs.items()]
        failed = [job for result in results for job in result.result()]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            with contextlib.suppress(ProcessLookupError):  # its stream has seen its end in this moment
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
        for pid in loops:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    print(f"beside {given.loops} busy loops, {given.times} times: {'FAILED: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
