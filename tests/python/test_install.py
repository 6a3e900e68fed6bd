"""What `make install` lays down: programs outside of the tree find it, build with it and run, wherever its folders were moved."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from cluster import TREE, VERSION, clean_environment
from test_demo import NO_OUTER_MAKE

PROGRAM = pathlib.Path(__file__).parent / "programs" / "installed.c"
CPP_PROGRAM = PROGRAM.with_suffix(".cpp")
SECOND = pathlib.Path(__file__).parent / "programs" / "second.rs"
PKG_CONFIG = pathlib.Path(sys.executable).with_name("pkgconf")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
LIMIT = 300
# How long it may take to load the library.
MOST_LOADING_NS = 5_000_000
# What cargo says where it does not reach a registry.
NO_NETWORK = re.compile(r"(?i)could not (connect|resolve)|failed to connect|timed out|timeout was reached|tunnel failed|network is unreachable|"
                        r"network failure|spurious network error|--offline was specified")
HERE = {**NO_OUTER_MAKE, **dict.fromkeys(("PREFIX", "LIBDIR", "DESTDIR"))}


def done(*words, env=None, **more):
    """What a command prints; it must succeed."""
    ended = subprocess.run([str(word) for word in words], env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT, **more)
    assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def make(goal, *, umask=-1, **where):
    return done("make", "-C", TREE, goal, *(f"{name}={value}" for name, value in where.items()), env=HERE, umask=umask)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file())


class Installed:
    def __init__(self, prefix, libraries):
        self.prefix, self.libraries = prefix, prefix / libraries

    def flags(self, package, *words):
        env = {"PKG_CONFIG_PATH": self.libraries / "pkgconfig", "PKG_CONFIG_LIBDIR": self.prefix / "nothing"}
        return done(PKG_CONFIG, *words, package, env=env).split()

    def runs(self, program):
        assert done(program, env={"LD_LIBRARY_PATH": self.libraries}) == f"muster {VERSION}: the sum is 20.5\n"
        return done("ldd", program, env={"LD_LIBRARY_PATH": self.libraries})


@pytest.fixture(scope="module", params=["lib", "lib/x86_64-linux-gnu"])
def installed(request, tmp_path_factory):
    """Under a prefix, within a folder that only the installation knows, and moved from there."""
    folder = tmp_path_factory.mktemp("install")
    make("install", PREFIX="/opt/first place", LIBDIR=request.param, DESTDIR=folder / "staged")
    shutil.move(folder / "staged" / "opt" / "first place", folder / "moved")
    assert files(folder / "staged") == []
    return Installed(folder / "moved", request.param)


@pytest.mark.parametrize("package, is_static", [("muster", False), ("muster-static", True)])
def test_pkg_config_finds_it(installed, package, is_static, tmp_path):
    assert installed.flags(package, "--modversion") == [VERSION]
    flags = installed.flags(package, "--cflags", "--libs")
    done("cc", *STRICT, PROGRAM, *flags, "-o", tmp_path / "program")
    needed = installed.runs(tmp_path / "program")
    assert ("libmuster.so.1" in needed) is not is_static, needed
    done("c++", "-std=c++17", *STRICT[1:], CPP_PROGRAM, *flags, "-o", tmp_path / "cpp_program")
    installed.runs(tmp_path / "cpp_program")


def test_cmake_finds_it(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.16)
        project(outside LANGUAGES C CXX)
        find_package(muster 1 REQUIRED)
        find_package(muster 1 REQUIRED) # a part of the project asks again
        foreach(name shared static)
            add_executable(${{name}} "{PROGRAM}")
        endforeach()
        target_link_libraries(shared PRIVATE muster::muster)
        target_link_libraries(static PRIVATE muster::static)
        add_executable(cpp program.cpp)
        target_link_libraries(cpp PRIVATE muster::muster)
        add_executable(cpp17 "{CPP_PROGRAM}")
        target_link_libraries(cpp17 PRIVATE muster::muster)
        target_compile_features(cpp17 PRIVATE cxx_std_17)
    """)
    (tmp_path / "program.cpp").write_text(f'#include "{PROGRAM}"\n')
    done(cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed.prefix}")
    done(cmake(), "--build", tmp_path / "build")
    for name, is_static in [("shared", False), ("static", True), ("cpp", False), ("cpp17", False)]:
        needed = installed.runs(tmp_path / "build" / name)
        assert ("libmuster.so.1" in needed) is not is_static, needed


@pytest.mark.parametrize("wanted, is_found", [("1", True), ("1.0", True), (VERSION, True), ("2", False), ("1.9999", False), ("0.9", False), ("1 COMPONENTS extras", False), ("1 OPTIONAL_COMPONENTS extras", True), (f"1...{VERSION}", True), (f"0.9...{VERSION}", False)])
def test_cmake_takes_a_version_and_components_that_fit_only(installed, wanted, is_found, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(outside LANGUAGES C)\nfind_package(muster {wanted})\n"
        "if(muster_FOUND)\nmessage(STATUS \"muster is there\")\nendif()\n")
    told = done(cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed.prefix}")
    assert ("muster is there" in told) is is_found, told


@pytest.mark.parametrize("wanted", ["1...1.3", "1...<1.5"])
def test_cmake_does_not_take_a_version_beyond_a_range(installed, wanted, tmp_path):
    shutil.copytree(installed.libraries / "cmake" / "muster", tmp_path / "muster")
    version = tmp_path / "muster" / "musterConfigVersion.cmake"
    version.write_text(version.read_text().replace(f'"{VERSION}"', '"1.5.0"'))
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.19)\nproject(outside LANGUAGES C)\nfind_package(muster {wanted})\n"
        "message(STATUS \"looked at ${muster_CONSIDERED_VERSIONS}, took ${muster_VERSION}\")\n")
    told = done(cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-Dmuster_DIR={tmp_path / 'muster'}")
    assert "looked at 1.5.0, took \n" in told, told


def cmake():
    beside = pathlib.Path(sys.executable).with_name("cmake")
    return beside if beside.exists() else "cmake"


def test_a_compiler_alone_is_enough(installed, tmp_path):
    include, libraries = f"-I{installed.prefix}/include", installed.libraries
    done("cc", *STRICT, include, PROGRAM, f"-L{libraries}", "-lmuster", "-o", tmp_path / "shared")
    installed.runs(tmp_path / "shared")
    done("cc", *STRICT, include, PROGRAM, libraries / "libmuster.a", "-lpthread", "-ldl", "-lm", "-o", tmp_path / "static")
    installed.runs(tmp_path / "static")


def test_a_compiler_of_older_c_plus_plus_is_told_what_is_needed(installed):
    words = ["c++", "-std=c++14", "-fsyntax-only", f"-I{installed.prefix}/include", CPP_PROGRAM]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode != 0 and "muster.hpp needs C++17: compile with -std=c++17 or newer" in ended.stderr, ended.stderr


def test_the_archive_lives_beside_another_rust_library(installed, tmp_path):
    done("rustc", "--crate-type", "staticlib", "-O", "-o", tmp_path / "libsecond.a", SECOND)
    archives = [installed.libraries / "libmuster.a", tmp_path / "libsecond.a"]
    for name, order in (("first", archives), ("last", archives[::-1])):
        done("cc", *STRICT, "-DWITH_SECOND", f"-I{installed.prefix}/include", PROGRAM, *order, "-lpthread", "-ldl", "-lm", "-o", tmp_path / name)
        installed.runs(tmp_path / name)


def test_the_archive_can_be_part_of_a_shared_object(installed, tmp_path):
    include = f"-I{installed.prefix}/include"
    plugin = tmp_path / "plugin.so"
    done("cc", *STRICT, "-Dmain=plugin_main", "-fPIC", "-shared", include, PROGRAM, installed.libraries / "libmuster.a", "-lpthread", "-ldl", "-lm",
         "-o", plugin)
    (tmp_path / "host.c").write_text("int plugin_main(void);\nint main(void) { return plugin_main(); }\n")
    done("cc", tmp_path / "host.c", plugin, "-o", tmp_path / "host")
    installed.runs(tmp_path / "host")


def test_only_muster_is_global_in_the_archive(installed):
    listed = set((TREE / "abi" / "symbols.txt").read_text().split())
    told = done("nm", "--extern-only", "--defined-only", "--format=posix", installed.libraries / "libmuster.a").splitlines()
    assert {line.split()[0] for line in told if " " in line} == listed


def test_what_is_installed_is_small_and_knows_no_folder(installed):
    library = installed.libraries / "libmuster.so.1"
    sections = done("readelf", "--sections", "--wide", library)
    assert ".debug_info" not in sections and ".gnu_debuglink" in sections
    assert os.path.realpath(library).endswith(f"libmuster.so.{VERSION}")
    assert ".debug_info" in done("readelf", "--sections", "--wide", f"{os.path.realpath(library)}.debug")
    for path in installed.prefix.rglob("*"):
        if path.is_file() and path.suffix in (".pc", ".cmake"):
            assert "staged" not in path.read_text() and "first place" not in path.read_text(), path
        assert not path.is_symlink() or not os.readlink(path).startswith("/"), path


def test_the_library_is_loaded_soon(installed, tmp_path):
    library = installed.libraries / "libmuster.so.1"
    done("cc", "-std=gnu99", TREE / "benches" / "load.c", "-ldl", "-o", tmp_path / "load")
    # Processor time, for the machine may have more to do; and the least, for the first load reads from the disk.
    busy = [int(done(tmp_path / "load", library).split()[1]) for _ in range(20)]
    assert min(busy) < MOST_LOADING_NS, busy


def test_all_that_was_laid_down_is_taken_away_again(tmp_path):
    tmp_path /= "somebody's folder"
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "usr" / "lib" / "libother.so").write_text("somebody else's")
    of_another_version = ["libmuster.so.1.99.7", "libmuster.so.1.99.7.debug"]  # ldconfig would choose it, for its number is higher
    for name in of_another_version:
        (tmp_path / "usr" / "lib" / name).touch()
    make("install", PREFIX="/usr", LIBDIR="/usr/lib", DESTDIR=tmp_path)
    laid_down = files(tmp_path)
    assert not [name for name in of_another_version if f"usr/lib/{name}" in laid_down]
    for one in ("bin/msrun", "include/muster.h", "include/muster.hpp", "lib/libmuster.so", "lib/libmuster.a", "lib/pkgconfig/muster.pc",
                "share/man/man1/muster.1", "share/bash-completion/completions/muster", "share/doc/muster/LICENSE-MIT", "share/doc/muster/licences.txt"):
        assert f"usr/{one}" in laid_down
    assert "Apache-2.0 OR ISC OR MIT" in (tmp_path / "usr/share/doc/muster/licences.txt").read_text()
    make("uninstall", PREFIX="/usr", LIBDIR="/usr/lib", DESTDIR=tmp_path)
    assert files(tmp_path) == ["usr/lib/libother.so"]
    assert not (tmp_path / "usr/share/doc/muster").exists() and not (tmp_path / "usr/lib/cmake/muster").exists()


def test_all_users_may_read_what_one_with_a_narrow_umask_lays_down(tmp_path):
    make("install", umask=0o077, DESTDIR=tmp_path)
    laid_down = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    wrong = [path for path in laid_down if path.stat().st_mode & 0o777 not in ((0o755,) if path.is_dir() else (0o644, 0o755))]
    assert laid_down and not wrong, wrong


def test_debug_information_stays_for_tools_that_take_it_out_themselves(tmp_path):
    make("install", PREFIX="/usr", DESTDIR=tmp_path, STRIP="no")
    for one in ("lib/libmuster.so", "bin/muster"):
        assert ".debug_info" in done("readelf", "--sections", "--wide", tmp_path / "usr" / one)
    assert not [name for name in files(tmp_path) if name.endswith(".debug")]


def test_licences_of_crates_that_a_packager_has_put_into_a_folder(tmp_path):
    # Of a folder that is called as the package cargo's words are others.
    tmp_path /= "muster"
    tmp_path.mkdir()
    for one in ("src", "examples", "benches", "tests"):
        shutil.copytree(TREE / one, tmp_path / one)
    for one in ("build.rs", "Cargo.toml", "Cargo.lock"):
        shutil.copy(TREE / one, tmp_path)
    # Cargo prints the configuration with which it takes the crates from that folder.
    vendored = subprocess.run(["cargo", "vendor", "--locked", "crates"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    if vendored.returncode != 0 and NO_NETWORK.search(vendored.stderr):
        pytest.skip(f"cargo cannot fetch the crates of other systems: {vendored.stderr[-200:]}")  # a registry is out of reach
    assert vendored.returncode == 0, vendored.stderr
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo" / "config.toml").write_text(vendored.stdout)
    script = TREE / "scripts" / "licences.sh"
    told = done(script, cwd=tmp_path, env={"CARGO_HOME": tmp_path / "nothing"})
    assert told == done(script, cwd=TREE)
    assert told.count("--- LICENSE") > 50


def test_a_path_that_leads_nowhere_is_named():
    ended = subprocess.run(["make", "-C", TREE, "install", "PREFIX=relative"], env=clean_environment(HERE), capture_output=True,
                           text=True, timeout=LIMIT)
    assert ended.returncode != 0 and 'PREFIX is "relative": an absolute path is needed' in ended.stderr
