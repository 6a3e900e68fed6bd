"""Programs that were built with another header than the library's."""

import pathlib
import subprocess

from cluster import LIBRARY, MUSTER, TREE, clean_environment

FIRST = TREE / "abi" / "first"
LIMIT = 60


def built(folder, source, *words):
    program = folder / "program"
    line = ["cc", "-std=c99", "-Wall", "-Werror", *words, source, f"-L{LIBRARY.parent}", "-lmuster", f"-Wl,-rpath,{LIBRARY.parent}", "-o", program]
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


def test_a_program_of_a_newer_header_is_told_so(tmp_path):
    """A newer ABI has another SONAME, so that the linker speaks first; a program that loads the library by name is told here."""
    source = tmp_path / "newer.c"
    source.write_text("""
        #include <muster.h>
        #include <stdio.h>
        int main(void) {
            muster_config_t *config = NULL;
            muster_status_t status = muster_config_new(MUSTER_ABI_VERSION + 1, &config);
            printf("%d %d %s\\n", status, config == NULL, muster_last_error());
            return 0;
        }
    """)
    told = subprocess.run([built(tmp_path, source, f"-I{TREE / 'include'}")], capture_output=True, text=True, timeout=LIMIT).stdout
    status, is_null, sentence = told.split(" ", 2)
    assert int(status) == -1, told  # MUSTER_ERR_INVALID
    assert is_null == "1" and "abi_version is 2: this library speaks ABI 1" in sentence, told
