"""docs/cpp.md: its programs compile and run, and its other blocks compile where a cluster and its world are there."""

import subprocess

import pytest
from cluster import TREE, VERSION, clean_environment
from pages import Page, paste

PAGE = Page("docs", "cpp.md")
BLOCKS = PAGE.of("cpp")
COMMANDS, = PAGE.commands
PROGRAMS = [block for block in BLOCKS if "int main()" in block]
PIECES = [block for block in BLOCKS if "int main()" not in block]
RELEASE = TREE / "target" / "release"
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
FOLDERS = [f"-I{TREE / 'include'}", f"-I{TREE / 'bindings' / 'cpp'}"]
LINK = [f"-L{RELEASE}", "-lmuster", f"-Wl,-rpath,{RELEASE}"]
AROUND = """#include <muster.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>
void piece(muster::cluster &cluster, const muster::group &world);
void piece(muster::cluster &cluster, const muster::group &world) {
    static_cast<void>(cluster), static_cast<void>(world);
    %s
}
"""
# As if the header were that of the next minor version.
NEWER = """#include <muster.h>
constexpr uint32_t next_minor = MUSTER_HEADER_VERSION + 0x10000;
#undef MUSTER_HEADER_VERSION
#define MUSTER_HEADER_VERSION next_minor
#include <muster.hpp>
#include <cstdio>
int main() {
    try {
        muster::config::create();
    } catch (const muster::error &error) {
        std::puts(error.what());
    }
}
"""
LIMIT = 120


def compiles(folder, text, *flags):
    (folder / "program.cpp").write_text(text)
    done = subprocess.run(["c++", *STRICT, *FOLDERS, "program.cpp", *flags], cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr


def test_no_block_is_forgotten():
    assert len(PROGRAMS) == 2 and len(PIECES) >= 7


@pytest.mark.parametrize("at", range(len(PIECES)))
def test_a_piece_compiles(at, tmp_path):
    # What a piece is there to show need not be used again.
    compiles(tmp_path, AROUND % PIECES[at], "-fsyntax-only", "-Wno-unused-variable", "-Wno-unused-but-set-variable")


@pytest.mark.parametrize("at, said", [(0, "rank 0 of 1: 0.5 1.5 2.5\n"), (1, "the sum is 2.5\n")])
def test_a_program_runs_alone(at, said, tmp_path):
    compiles(tmp_path, PROGRAMS[at], "-o", "program", *LINK)
    alone = subprocess.run(["./program"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, said, "")


def test_a_program_of_a_newer_header_is_told_so(tmp_path):
    compiles(tmp_path, NEWER, "-o", "program", *LINK)
    alone = subprocess.run(["./program"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert "abi_version is that of muster " in alone.stdout and f"this library is muster {VERSION}" in alone.stdout, alone


# From C++20 on the literal does not compile (ctests/cpp_refused.cpp).
UTF_8 = """#include <muster.hpp>
#include <cstdio>
#include <string_view>
int main() {
    const muster::cluster cluster = muster::init();
#ifdef LITERAL
    cluster.store().set("key", u8"text");
#else
    cluster.store().set("key", std::u8string_view(u8"text"));
#endif
    std::printf("%zu", cluster.store().get("key").size());
}
"""


@pytest.mark.parametrize("standard, flag", [("c++17", "-DLITERAL"), ("c++20", "-DVIEW")])
def test_a_text_in_utf_8_is_set_without_its_zero_byte(standard, flag, tmp_path):
    compiles(tmp_path, UTF_8, f"-std={standard}", flag, "-o", "program", *LINK)
    alone = subprocess.run(["./program"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert (alone.returncode, alone.stdout) == (0, "4"), alone


def test_the_commands_of_the_page_run_the_program_on_four_ranks(tmp_path):
    (tmp_path / "program.cpp").write_text(PROGRAMS[0])
    here = f"export PATH={RELEASE}:$PATH\npkg-config() {{ echo {' '.join([*FOLDERS, *LINK])}; }}\n"
    with paste(here + COMMANDS, tmp_path, 0) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        assert sorted(shell.stdout.splitlines()) == [f"[rank {rank}] rank {rank} of 4: 2 1.5 2.5" for rank in range(4)]
