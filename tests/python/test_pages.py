"""The commands of docs/install.md, docs/launcher.md and docs/security.md, pasted one after another as a reader does it."""

import re
import shutil

import pytest

from cluster import TREE, VERSION, reserved_port
from pages import Page, paste, prepare
from test_demo import NO_OUTER_MAKE
from test_install import PKG_CONFIG, PROGRAM, cmake, done

HELLO, = Page("README.md").programs
BUILD_ALL, COMPILE, *_ = Page("README.md").commands
PATH = BUILD_ALL.splitlines(keepends=True)[-1]
LAUNCH, RUNS = Page("docs", "launcher.md").commands
SECRET, FILES, PASSWORD, CERTS = Page("docs", "security.md").commands
INSTALL, BUILD = Page("docs", "install.md").commands
PROJECT, = Page("docs", "install.md").of("cmake")
BUILD_HELLO = COMPILE.splitlines(keepends=True)[0]
PAIR = "muster run --worker_num 2 --master_port 0 --join --log_dir logs ./hello\n"
LIMIT = 120


@pytest.fixture
def folder(tmp_path):
    return prepare(tmp_path, hello=HELLO)


def said(folder, commands):
    """What the commands print, sorted, after hello has been built. Where they name no port they get one that is free."""
    commands = commands.replace("muster run --worker_num 8 --join", "muster run --worker_num 8 --master_port 8118 --join")
    with reserved_port() as port, paste(PATH + BUILD_HELLO + commands, folder, port) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        return sorted(re.sub(r"^\[rank \d\] ", "", line) for line in shell.stdout.splitlines())


def lines(size):
    return [f"rank {rank} of {size}: the ranks add up to {sum(range(size))}" for rank in range(size)]


def test_a_launch_of_eight(folder):
    assert said(folder, LAUNCH) == lines(8)


def test_a_run_without_join_is_listed_and_stopped(folder):
    shown = said(folder, "muster run --worker_num 1 --master_port 0 --log_dir logs sleep 600\n" + RUNS)
    listed = {line.split()[1] for line in shown if re.match(r" +worker_0\.log +\d+ ", line)}
    assert listed & set(shown), "one of them the launcher has printed; another test may have a run at the time"


def test_a_secret_in_the_environment(folder):
    assert said(folder, SECRET + "printenv MUSTER_JOB_SECRET | tr 0-9a-f .\n" + PAIR) == ["." * 64, *lines(2)]


def test_certificates_and_the_file_that_names_them(folder):
    assert [line for line in said(folder, CERTS + PAIR) if "rank" in line] == lines(2)
    assert "/etc/job/" in FILES
    assert said(folder, FILES.replace("/etc/job/", f"{folder}/certs/node/") + PAIR) == lines(2)


def test_a_password_by_a_descriptor(folder):
    made = "muster certs new sealed --format=p12 > /dev/null\npass() { cat sealed/node/password; }\nmv hello train\n"
    files = FILES.replace("/etc/job/", f"{folder}/sealed/node/")
    assert said(folder, made + files + PASSWORD) == lines(1)


def test_what_is_installed_is_found_by_pkg_config_and_by_cmake(tmp_path):
    prefix = tmp_path / "usr"
    library, install = INSTALL.splitlines()
    assert (library, install) == ("make library", "make install PREFIX=/usr/local")
    done(*install.replace("/usr/local", str(prefix)).split(), cwd=TREE, env={**NO_OUTER_MAKE, "DESTDIR": None, "LIBDIR": None})
    shutil.copy(PROGRAM, tmp_path / "program.c")
    env = {"PKG_CONFIG_PATH": prefix / "lib" / "pkgconfig", "LD_LIBRARY_PATH": prefix / "lib"}
    for line in BUILD.splitlines():
        done("bash", "-ec", f'pkg-config() {{ {PKG_CONFIG} "$@"; }}\n{line}', cwd=tmp_path, env=env)
        assert done("./program", cwd=tmp_path, env=env) == f"muster {VERSION}: the sum is 20.5\n"
    head = "cmake_minimum_required(VERSION 3.16)\nproject(outside LANGUAGES C)\n"
    find, link = PROJECT.splitlines(keepends=True)
    (tmp_path / "CMakeLists.txt").write_text(f"{head}{find}add_executable(program program.c)\n{link}")
    done(cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    done(cmake(), "--build", tmp_path / "build")
    assert done(tmp_path / "build" / "program", env=env) == f"muster {VERSION}: the sum is 20.5\n"
