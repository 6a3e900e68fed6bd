"""Debian's packages: built by dpkg-buildpackage, and installed by dpkg into a system that only the test sees."""

import os
import re
import shutil
import subprocess

import pytest
from cluster import TARGET, TREE, VERSION, clean_environment
from test_demo import NO_OUTER_MAKE

FOLDER = TARGET / "deb"
PROGRAM = TREE / "tests" / "python" / "programs" / "installed.c"
BUILD_LIMIT = 3000
LIMIT = 300
PACKAGES = ("libmuster1", "libmuster-dev", "muster", "python3-muster")
TOOLS = ("dpkg-buildpackage", "dh", "dh_python3", "unshare")

# The system's files are below, what changes is above, in memory, and nobody outside of these mounts sees it.
SYSTEM = """
mount -t tmpfs tmpfs "$0"
mkdir "$0/up" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/up,workdir=$0/work" "$0/root"
mount --rbind /proc "$0/root/proc"
mount --rbind /dev "$0/root/dev"
mkdir "$0/root/packages"
cp "$1"/* "$0/root/packages"
exec chroot "$0/root" sh -euc "cd /packages; $2"
"""

# A user's first minutes: a program with the shared and the static library, four workers, and Python.
FIRST_MINUTES = """
dpkg --install *.deb >/dev/null
cc installed.c -lmuster -o shared && ./shared
cc installed.c -l:libmuster.a -lpthread -ldl -lm -o static && ./static
muster run --worker_num 4 --master_port 0 --join --log_dir logs ./shared
test -e /usr/share/man/man1/muster.1.gz && test -e /usr/share/zsh/vendor-completions/_muster
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c '
import importlib.metadata, muster
with muster.init() as cluster: print("python", cluster.size, importlib.metadata.version("muster"))'
dpkg --purge python3-muster muster libmuster-dev libmuster1 >/dev/null
[ ! -e /usr/include/muster.h ] && [ ! -e /usr/bin/muster ] && [ -z "$(find /usr/lib -name "libmuster*")" ]
"""


def missing():
    return [tool for tool in TOOLS if shutil.which(tool) is None and not os.path.exists(f"/usr/share/dh-python/{tool}")]


@pytest.fixture(scope="module")
def packages():
    if missing():  # Debian's tools alone make Debian's packages; `make test-install` installs them where it may
        pytest.skip(f"{' and '.join(missing())} are missing: apt-get install debhelper dh-python")
    words = ["make", "-C", str(TREE), "deb"]
    ended = subprocess.run(words, env=clean_environment(NO_OUTER_MAKE), capture_output=True, text=True, timeout=BUILD_LIMIT)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return FOLDER


def contents(package):
    listed = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True, timeout=LIMIT).stdout
    return {line.split()[5].removeprefix("."): line.split()[0] for line in listed.splitlines() if not line.startswith("d")}


def package(folder, name):
    (found,) = folder.glob(f"{name}_{VERSION}_*.deb")
    return found


def test_the_version_is_the_librarys():
    assert (TREE / "debian" / "changelog").read_text().startswith(f"muster ({VERSION}) ")


def test_the_source_package_has_no_built_file(packages):
    assert (packages / f"muster_{VERSION}.dsc").exists()
    words = ["tar", "--list", "--file", packages / f"muster_{VERSION}.tar.xz"]
    listed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=LIMIT).stdout.splitlines()
    assert any(name.endswith("/src/lib.rs") for name in listed)
    assert not [name for name in listed if "/target/" in name or "/.git/" in name or name.endswith(".pyc")]


@pytest.mark.parametrize("name, some", [
    ("libmuster1", [rf"/usr/lib/[^/]+/libmuster\.so\.{VERSION}", r"/usr/lib/[^/]+/libmuster\.so\.1", "/usr/share/doc/libmuster1/licences.txt.gz"]),
    ("libmuster-dev", ["/usr/include/muster.h", r"/usr/lib/[^/]+/libmuster\.a", r"/usr/lib/[^/]+/libmuster\.so",
                       r"/usr/lib/[^/]+/pkgconfig/muster\.pc", r"/usr/lib/[^/]+/cmake/muster/musterConfig\.cmake"]),
    ("muster", ["/usr/bin/muster", "/usr/bin/msrun", "/usr/share/man/man1/msrun.1.gz"]),
    ("python3-muster", ["/usr/lib/python3/dist-packages/muster/__init__.py", "/usr/lib/python3/dist-packages/muster/py.typed"]),
])
def test_each_package_has_its_files(packages, name, some):
    has = contents(package(packages, name))
    for pattern in some:
        assert [path for path in has if re.fullmatch(pattern, path)], f"{pattern}: {sorted(has)}"


def test_a_user_installs_them_builds_a_program_and_runs_it(packages, tmp_path):
    if os.geteuid() != 0:  # an overlay over the system's own files is a mount
        pytest.skip("only root can mount a system of its own")
    brought, mounts = tmp_path / "brought", tmp_path / "system"
    brought.mkdir()
    mounts.mkdir()
    for path in [PROGRAM, *(package(packages, name) for name in PACKAGES)]:
        shutil.copy(path, brought)
    words = ["unshare", "--mount", "sh", "-euc", SYSTEM, str(mounts), str(brought), FIRST_MINUTES]
    ended = subprocess.run(words, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    alone = f"muster {VERSION}: the sum is 20.5"
    assert ended.stdout.splitlines()[:2] == [alone, alone]
    assert len(re.findall(rf"muster {VERSION}: the sum is ", ended.stdout)) == 2 + 4
    assert ended.stdout.splitlines()[-1] == f"python 1 {VERSION}"
