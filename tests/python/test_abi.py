"""Programs that were built with another header than the library's."""

import pathlib
import re
import subprocess

import pytest

from cluster import INSTALLED, MUSTER, TREE, VERSION, clean_environment

FIRST = TREE / "abi" / "first"
LIMIT = 60


def built(folder, source, *words):
    program = folder / "program"
    line = ["cc", "-std=c99", "-Wall", "-Werror", *words, source, f"-L{INSTALLED}/lib", "-lmuster", f"-Wl,-rpath,{INSTALLED}/lib", "-o", program]
    subprocess.run(line, check=True, timeout=LIMIT)
    return program


def test_a_program_of_the_first_header_runs_on(tmp_path):
    program = built(tmp_path, FIRST / "program.c", f"-I{FIRST}")
    words = [MUSTER, "run", "--worker_num=3", "--local_worker_num=3", "--master_port=0", "--join", "--log_dir=logs", program]
    run = subprocess.run(words, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run
    for rank in range(3):
        log = (tmp_path / "logs" / f"worker_{rank}.log").read_text()
        assert log == f"rank {rank} of 3, epoch 1: sum 6, last 3, told 77, self 1, cause -6\n"


ASKS = """
    #include <muster.h>
    #include <stdio.h>
    int main(void) {
        muster_config_t *config = NULL;
        muster_status_t status = muster_config_new(ASKED, &config);
        printf("%d %d %s\\n", status, config == NULL, muster_last_error());
        muster_config_free(config);
        return 0;
    }
"""


def asked(folder, what, include):
    """What muster_config_new says to a number: its status, whether it gave nothing, and the sentence."""
    source = folder / "asks.c"
    source.write_text(ASKS)
    program = built(folder, source, f"-DASKED={what}", f"-I{include}")
    return subprocess.run([program], capture_output=True, text=True, timeout=LIMIT, check=True).stdout


def with_minor(folder, difference):
    """The header of a release with another minor number."""
    header = (INSTALLED / "include" / "muster.h").read_text()
    line = re.search(r"#define MUSTER_HEADER_VERSION (\d+)\n", header)
    (folder / "muster.h").write_text(header.replace(line[0], f"#define MUSTER_HEADER_VERSION {int(line[1]) + (difference << 16)}\n"))
    return folder


def test_a_program_of_a_newer_abi_is_told_so(tmp_path):
    """A newer ABI has another SONAME, so that the linker speaks first; a program that loads the library by name is told here."""
    told = asked(tmp_path, "MUSTER_ABI_VERSION + 1", INSTALLED / "include")
    assert told.startswith("-1 1 ") and "abi_version is 2: this library speaks ABI 1" in told  # MUSTER_ERR_INVALID


def test_a_program_of_a_newer_header_is_told_so(tmp_path):
    major, minor, _ = VERSION.split(".")
    told = asked(tmp_path, "MUSTER_HEADER_VERSION", with_minor(tmp_path, 1))
    newer = f"{major}.{int(minor) + 1}"
    assert told.startswith("-1 1 ") and f"abi_version is that of muster {newer}: this library is muster {VERSION}; install {newer}" in told


@pytest.mark.parametrize("what", ["MUSTER_HEADER_VERSION", "MUSTER_ABI_VERSION"])
def test_a_program_of_this_header_is_taken_and_so_is_one_that_needs_nothing_new(what, tmp_path):
    assert asked(tmp_path, what, INSTALLED / "include") == "0 0 \n"
    assert asked(tmp_path, "MUSTER_ABI_VERSION", with_minor(tmp_path, 1)) == "0 0 \n"
