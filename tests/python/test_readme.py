"""The programs and commands of the README, of docs/python.md and docs/mindspore.md do what these say when they are pasted, and leave nothing that
git would want to add."""

import os
import re
import shutil
import signal
import subprocess

import pytest
from cluster import TREE, Process, reserved_port
from pages import STRICT, WARNINGS, Page, compiles, paste, prepare
from test_demo import NO_OUTER_MAKE

README = Page("README.md")
PROGRAM, = README.programs
CPP_PROGRAM, = README.of("cpp")
PYTHON_PROGRAM, = README.of("python")
# `make demo` has a test of its own, and `make test` runs this one.
BUILD, HELLO, PYTHON, RECOVERY = README.commands
PATH = BUILD.splitlines(keepends=True)[-1]
PACKAGE = re.search(r"`make library`.*`(make install [^`]*)`", README.text, re.S)[1]
STATUS = re.search(r"`(muster status [^`]*)`", README.text)[1]
PYTHON_PAGE, = Page("docs", "python.md").commands
BY_HAND, = Page("docs", "mindspore.md").commands
LIMIT = 60
# What a recipe calls that tests something, or holds it to a bound.
CHECKS = r"-m pytest|\$\(CTEST\)|RUN_CTESTS|cargo (test|fmt|clippy)|scripts/(chaos|storm|fuzz_all|under_load)\.py|\|\| failed=1|--limit"
# It writes the header anew; and it is one part of fuzz-all.
NO_TESTS_OF_THEIR_OWN = {"header", "fuzz"}
TRAINING_LIMIT = 400


@pytest.fixture
def folder(tmp_path):
    return prepare(tmp_path, hello=PROGRAM)


def nothing_to_add(folder):
    ignored = [line.removeprefix("/") for line in (TREE / ".gitignore").read_text().split()]
    left = [path for path in folder.iterdir() if path.name != "include"]
    assert [path.name for path in left if not any(path.match(name) for name in ignored)] == []


def test_make_test_names_all_that_it_leaves_out():
    rules = re.findall(r"^([a-z][a-z0-9 -]*):(?!=) *([^\n]*)\n((?:\t[^\n]*\n|(?:if|else|endif)[^\n]*\n)*)", (TREE / "Makefile").read_text(), re.M)
    needs = {name: words.split() for names, words, _ in rules for name in names.split()}
    checking = {name for names, _, recipe in rules for name in names.split() if re.search(CHECKS, recipe)}
    said, = [recipe for names, _, recipe in rules if names == "test"]
    named = re.findall(r"make ([a-z0-9-]+)", said.split("leaves out:")[1])

    def all_of(name):
        return {name}.union(*(all_of(needed) for needed in needs.get(name, []) if needed in needs))

    assert len(checking) > 20 and set(named) <= checking | {"sanitize"}
    assert checking - NO_TESTS_OF_THEIR_OWN - all_of("test") - set().union(*map(all_of, named)) == set()


def test_the_program_is_short_and_compiles_without_a_warning(folder):
    assert len(PROGRAM.splitlines()) <= 30
    compiles(folder, "hello")


def test_the_program_runs_alone_under_the_launcher_and_by_hand(folder):
    with reserved_port() as port, paste(PATH + HELLO + BY_HAND, folder, port) as shell:
        assert shell.wait(2 * LIMIT) == 0
        alone, *others = shell.stdout.splitlines()
        assert alone == "rank 0 of 1: the ranks add up to 0"
        said = sorted(re.sub(r"^\[rank \d\] ", "", line) for line in others)
        by_hand, launched = [[f"rank {rank} of {size}: the ranks add up to {total}" for rank in range(size)]
                             for size, total in ((2, 1), (4, 6))]
        assert said == sorted(by_hand + launched)
    nothing_to_add(folder)


def four_ranks_said(shell):
    assert shell.wait(2 * LIMIT) == 0, shell.describe()
    said = sorted(re.findall(r"^\[rank \d\] (.*)", shell.stdout, re.M))
    assert said == [f"rank {rank} of 4: the ranks add up to 6" for rank in range(4)]


def test_a_person_who_writes_cpp_gets_going(folder):
    (folder / "bindings").symlink_to(TREE / "bindings")
    (folder / "hello.cpp").write_text(CPP_PROGRAM)
    (folder / "hello.c").unlink()
    in_place_of_cc = re.search(r"compile it with `(c\+\+ [^`]*)` in place of `cc`", README.text)[1]
    compile_it, _, run_it = HELLO.replace("cc ", f"{in_place_of_cc} {' '.join(WARNINGS)} ").replace("hello.c ", "hello.cpp ").splitlines()
    with reserved_port() as port, paste(f"{PATH}{compile_it}\n{run_it}\n", folder, port) as shell:
        four_ranks_said(shell)


@pytest.mark.parametrize("commands", [PYTHON, PYTHON_PAGE], ids=["README", "its own page"])
def test_a_person_who_writes_python_gets_going_with_the_wheel_alone(tmp_path, commands):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "wheels").symlink_to(TREE / "target" / "wheels")
    of_the_page = re.search(r"```python\n(.*?)```", Page("docs", "python.md").text, re.S)[1]
    (tmp_path / "hello.py").write_text(PYTHON_PROGRAM if commands is PYTHON else of_the_page)
    with reserved_port() as port, paste(commands, tmp_path, port) as shell:
        four_ranks_said(shell)


def test_a_packager_gets_going(tmp_path):
    """In a folder that has what the tree has, so that what they make there stays there."""
    for path in TREE.iterdir():
        if path.name != ".git":
            (tmp_path / path.name).symlink_to(path)
    before = set(tmp_path.iterdir())
    shell = ["bash", "-euo", "pipefail", "-c", PACKAGE]
    with Process(shell, {**NO_OUTER_MAKE, "PREFIX": None, "DESTDIR": None}, "packager", cwd=tmp_path) as packager:
        assert packager.wait(LIMIT) == 0, packager.describe()
    assert set(tmp_path.iterdir()) - before == {tmp_path / "package"}
    found = {str(path.relative_to(tmp_path / "package" / "usr")) for path in (tmp_path / "package").rglob("*")}
    assert {"include/muster.h", "include/muster.hpp", "lib/libmuster.so.1", "lib/libmuster.a", "lib/pkgconfig/muster.pc",
            "lib/cmake/muster", "bin/muster", "share/man/man1/muster.1"} <= found


def test_the_training_goes_on_when_a_worker_is_killed_and_says_how_it_is(folder):
    with reserved_port() as port, paste(PATH + RECOVERY, folder, port) as training:
        victim = int(training.wait_for(r"worker 2 has pid (\d+)", LIMIT)[1])
        training.wait_for(r"epoch: 1, ", LIMIT)
        with paste(PATH + STATUS, folder, port) as status:
            assert status.wait(LIMIT) == 0
            assert ": running: 4 workers\n" in status.stdout
            assert len(re.findall(r"^worker +[0-3] .* member ", status.stdout, re.M)) == 4
        os.kill(victim, signal.SIGKILL)
        training.wait_for(r"worker 2 \(pid \d+\) was ended by signal 9.*; restart 1 of 3 has pid", LIMIT)
        training.wait_for(r"rank 0 goes on from step \d+", LIMIT)
        assert training.wait(TRAINING_LIMIT) == 0
        assert training.stdout.endswith("the weights of the 4 ranks are equal, bit for bit\n")
    nothing_to_add(folder)


def test_a_program_is_built_and_runs_with_what_was_installed(folder):
    prefix = folder / "installed"
    with Process(["make", "-C", TREE, "install", f"PREFIX={prefix}"], {**NO_OUTER_MAKE, "DESTDIR": None}) as install:
        assert install.wait(LIMIT) == 0
    completions = ("bash-completion/completions/muster", "zsh/site-functions/_muster", "fish/vendor_completions.d/muster.fish")
    for page in ("man/man1/muster.1", "man/man1/msrun.1", *completions):
        assert (prefix / "share" / page).stat().st_size > 0, page
    (folder / "include").unlink()
    (folder / "target").unlink()
    link = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lmuster", f"-Wl,-rpath,{prefix}/lib"]
    subprocess.run(["cc", *STRICT, "hello.c", "-o", "hello", *link], cwd=folder, check=True, timeout=LIMIT)
    for command in (["muster", "run"], ["msrun"]):
        words = [prefix / "bin" / command[0], *command[1:], "--worker_num=2", "--master_port=0", "--join", "./hello"]
        with Process(words, cwd=folder) as launcher:
            assert launcher.wait(LIMIT) == 0
            assert sorted(launcher.stdout.splitlines()) == [
                f"[rank {rank}] rank {rank} of 2: the ranks add up to 1" for rank in range(2)
            ]


def test_a_person_who_is_not_ready_to_install_is_told_so(tmp_path):
    for path in ("Makefile", "Cargo.toml", "scripts/install.sh", "scripts/system_cmake.sh"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(TREE / path, tmp_path / path)
    with Process(["make", "-C", tmp_path, "install", f"PREFIX={tmp_path}/prefix"], NO_OUTER_MAKE) as install:
        assert install.wait(LIMIT) != 0
        assert "run `make library` first" in install.stderr
    assert not (tmp_path / "prefix").exists()


def test_what_it_points_to_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", README.text)
    assert links and [link for link in links if not (TREE / link).exists()] == []
