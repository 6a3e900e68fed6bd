"""The README's program does what the README says when it is pasted."""

import re
import subprocess

from cluster import TREE


def test_the_program_of_the_readme_works_when_pasted(tmp_path):
    text = (TREE / "README.md").read_text()
    source = re.search(r"```c\n(.*?)```", text, re.S).group(1)
    assert len(source.splitlines()) <= 30
    (tmp_path / "hello.c").write_text(source)
    release = TREE / "target" / "release"
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    link = [f"-I{TREE / 'include'}", f"-L{release}", "-lmuster", f"-Wl,-rpath,{release}"]
    subprocess.run(["cc", *strict, "hello.c", "-o", "hello", *link], cwd=tmp_path, check=True, timeout=60)

    alone = subprocess.run(["./hello"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert alone.stdout == "rank 0 of 1: the ranks add up to 0\n"

    command = [str(release / "muster"), "run", "--worker_num", "4", "--master_port", "0", "--join", "./hello"]
    four = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    for rank in range(4):
        assert f"rank {rank} of 4: the ranks add up to 6" in four.stdout
