"""A packager's first minutes: the commands of docs/install.md, pasted where there is nothing but a copy of the tree."""

import re
import resource
import subprocess

from cluster import TREE, VERSION, clean_environment
from pages import Page
from test_demo import NO_OUTER_MAKE

FIVE_MINUTES = 300
PROCESSORS = 2
LIMIT = 3000
ELSEWHERE = ("CARGO_TARGET_DIR", "PREFIX", "LIBDIR", "DESTDIR")
PAGE = Page("docs", "install.md")
(BUILD,) = [line for block in PAGE.commands for line in block.splitlines() if line == "make library"]
(INSTALL,) = re.findall(r"`(make install [^`]*DESTDIR=[^`]*)`", PAGE.text)


def copied(folder):
    """What a packager unpacks: all of the tree but what is built, in a folder of its own."""
    words = f"tar -C '{TREE}' -c --exclude=./target --exclude-vcs --exclude-vcs-ignores . | tar -C '{folder}' -x"
    subprocess.run(["bash", "-euo", "pipefail", "-c", words], check=True, timeout=LIMIT)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_package_is_made_in_five_minutes(tmp_path):
    copied(tmp_path)
    assert not (tmp_path / "target").exists() and (tmp_path / "Makefile").exists()
    before = processor_seconds()
    environment = clean_environment({**NO_OUTER_MAKE, **dict.fromkeys(ELSEWHERE)})
    ended = subprocess.run(["bash", "-euo", "pipefail", "-c", f"{BUILD}\n{INSTALL}"], cwd=tmp_path, env=environment, capture_output=True,
                           text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    # On a machine that has other work as well the clock says nothing of ours.
    assert processor_seconds() - before < FIVE_MINUTES * PROCESSORS

    prefix = tmp_path / "package" / "usr"
    program = TREE / "tests" / "python" / "programs" / "installed.c"
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lmuster", f"-Wl,-rpath,{prefix}/lib"]
    subprocess.run(["cc", program, *flags, "-o", tmp_path / "program"], check=True, timeout=LIMIT)
    told = subprocess.run([tmp_path / "program"], env=clean_environment(), check=True, capture_output=True, text=True, timeout=LIMIT).stdout
    assert told == f"muster {VERSION}: the sum is 20.5\n"
