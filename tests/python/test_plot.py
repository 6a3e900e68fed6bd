"""`muster bench --plot` and `python3 -m muster.plot`: what was measured is drawn, beside peers, and what keeps it from being drawn is told."""

import csv
import io
import os
import pathlib
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from cluster import MUSTER, Process, clean_environment
from launch import Launch
from packaged import BINDINGS, the_package

# The command takes the interpreter of the tests, which has matplotlib.
ENV = {"PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": BINDINGS}
TINY = ["--worker_num", "2", "--iters", "3", "--warmup", "1", "--sizes", "8,1K,64K"]
TIMEOUT_S = 200  # matplotlib's first start on a machine reads all its fonts


@pytest.fixture(scope="module")
def plot():
    the_package()
    import muster.plot

    return muster.plot


def bench(*words, code=0, env=None):
    with Process([MUSTER, "bench", *words], {**ENV, **(env or {})}) as process:
        assert process.wait(timeout=TIMEOUT_S) == code, process.stderr
        return process.stdout, process.stderr


def texts(picture):
    """What an SVG says, each piece of text once."""
    return {"".join(element.itertext()).strip() for element in xml.etree.ElementTree.parse(picture).iter() if element.tag.endswith("}text")}


def lines(picture):
    """How many programs' lines are drawn, in all panels."""
    return len(re.findall(r'clip-path="[^"]*" style="fill: none; stroke: #\w+; stroke-width: 1\.4', picture.read_text()))


def peers(passes=5):
    """A table as `make bench-peers` writes it: over TCP muster, two peers, and the yardstick, whose sum on 3 ranks ran on 4; and one in memory."""
    columns = "pass,beside,program,run,collective,algorithm,ranks,bytes,iterations,p50_rank0_us,p50_us"
    rows = ["# date: today", columns]
    for number in range(1, passes + 1):
        rows.append(f"{number},2,loopback,1,one_way,,2,262144,1,,80")
        for size, us in ((8, 10), (1024, 12), (65536, 40)):
            rows.append(f"{number},2,yardstick,1,allreduce,,2,{size},9,{us - 1},")
            rows.append(f"{number},2,yardstick,2,allreduce,,2,{size},9,{us + 999},")
            rows.append(f"{number},3,yardstick,1,allreduce,,4,{size},9,{us},")
            rows.append(f"{number},2,muster,1,allreduce,,2,{size},9,{us + number},{us + number + 1}")
            rows.append(f"{number},3,muster,1,allreduce,,3,{size},9,{us},{us}")
            rows.append(f"{number},2,openmpi,1,allreduce,,2,{size},9,{2 * us},{2 * us}")
            rows.append(f"{number},2,mpich,1,allreduce,,2,{size},9,{us / 10},{us / 10}")
            for algorithm, factor in (("ring", 5 if size < 65536 else 3), ("halving", 4)):
                rows.append(f"{number},2,gloo,1,allreduce,{algorithm},2,{size},9,{factor * us},{factor * us}")
        rows.append(f"{number},2,muster,1,barrier,,2,0,9,3,3")
    return "\n".join(rows) + "\n"


def test_the_command_draws_what_it_prints(tmp_path):
    svg, png = tmp_path / "now.svg", tmp_path / "now.png"
    out, errors = bench("allreduce", *TINY, "--plot", f"{svg},{png}", "--format", "csv")
    assert errors == "" and len(list(csv.DictReader(io.StringIO(out)))) == 3
    assert {"muster", "8 B", "1 KiB", "64 KiB", "allreduce on 2 ranks: time", "us a call, on the slowest rank"} <= texts(svg)
    assert "GB/s that each rank's link carries" in texts(svg) and lines(svg) == 2
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", head[16:])[0] == 1500


def test_the_same_results_give_the_same_picture(tmp_path):
    (tmp_path / "raw.csv").write_text(peers())
    for name in ("one.svg", "two.svg"):
        command = [sys.executable, "-m", "muster.plot", "--out", name, "raw.csv"]
        done = subprocess.run(command, env=clean_environment(ENV), cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_peers_are_drawn_beside_it(tmp_path):
    (tmp_path / "raw.csv").write_text(peers())
    picture = tmp_path / "beside.svg"
    bench("allreduce", *TINY, "--plot", picture, "--beside", tmp_path / "raw.csv")
    said = texts(picture)
    assert {"muster", "muster over TCP", "yardstick over TCP", "Open MPI over TCP", "Gloo over TCP", "MPICH"} <= said
    assert "us a call, on rank 0" in said, "the yardstick knows no other rank's times"
    assert not [words for words in said if "3 ranks" in words] and lines(picture) == 12


def test_under_a_launcher_rank_0_draws(tmp_path):
    words = ["--worker_num", "2", "--local_worker_num", "2", "--master_port", "0", "--join", "True"]
    measured = ["allgather", "--sizes", "8,64", "--iters", "3", "--plot", tmp_path / "launched.png"]
    with Launch(*words, MUSTER, "bench", *measured, env=ENV) as launch:
        assert launch.wait(timeout=TIMEOUT_S) == 0, launch.stderr
        assert (tmp_path / "launched.png").read_bytes().startswith(b"\x89PNG")


def test_one_rank_has_a_time_and_no_bandwidth(tmp_path):
    bench("allreduce", "--sizes", "8,64", "--iters", "3", "--plot", tmp_path / "alone.svg")
    said = texts(tmp_path / "alone.svg")
    assert "allreduce on 1 rank: time" in said and not [words for words in said if "GB/s" in words]


def test_what_is_drawn_of_the_peers_table(plot, tmp_path):
    (tmp_path / "raw.csv").write_text(peers())
    series = {(one.case.ranks, one.label): one.times for one in plot.read(str(tmp_path / "raw.csv"))}
    assert list(series) == [
        (2, "MPICH"),
        (2, "yardstick over TCP"),
        (2, "muster over TCP"),
        (3, "muster over TCP"),
        (2, "Open MPI over TCP"),
        (2, "Gloo over TCP"),
    ]
    assert series[2, "muster over TCP"][8] == {"p50_us": [12, 13, 14, 15, 16], "p50_rank0_us": [11, 12, 13, 14, 15]}
    assert series[2, "yardstick over TCP"][8] == {"p50_us": [], "p50_rank0_us": [9] * 5}
    assert [times["p50_us"][0] for times in series[2, "Gloo over TCP"].values()] == [40, 48, 120], "the better algorithm of each size"


@pytest.mark.parametrize("collective", ["allgather", "allreduce", "alltoall", "broadcast", "gather", "reduce", "reduce_scatter",
                                        "scatter", "sendrecv"])
def test_bandwidths_are_those_of_the_command(plot, collective):
    out, _ = bench(collective, "--worker_num", "3", "--iters", "3", "--sizes", "64K", "--format", "csv")
    row, = csv.DictReader(io.StringIO(out))
    drawn = plot.bandwidth(plot.Case(collective, 3), 65536, float(row["p50_us"]))
    assert drawn == pytest.approx(float(row["busbw_gb_s"]), rel=0.01, abs=0.0001)


WRONG = {
    "another kind of picture": (["--out", "x.gif", "raw.csv"], ["x.gif", ".svg or .png"]),
    "no folder": (["--out", "none/x.svg", "raw.csv"], ["none/x.svg", "no folder none"]),
    "no file": (["--out", "x.svg"], ["no file of results"]),
    "a file that is not there": (["--out", "x.svg", "none.csv"], ["none.csv", "No such file"]),
    "another table": (["--out", "x.svg", "other.csv"], ["other.csv", "muster bench COLLECTIVE --format csv", "make bench-peers"]),
    "a number in words": (["--out", "x.svg", "words.csv"], ["words.csv", "row 11", "bytes is 'many'"]),
    "a cut table": (["--out", "x.svg", "cut.csv"], ["cut.csv", "row 3", "ranks is None"]),
    "a table without runs": (["--out", "x.svg", "no_runs.csv"], ["no_runs.csv", "is no table of results"]),
    "a field without end": (["--out", "x.svg", "endless.csv"], ["endless.csv", "is no table", "field"]),
    "no time": (["--out", "x.svg", "untimed.csv"], ["untimed.csv", "row 4", "p50_us and p50_rank0_us are both empty"]),
    **{f"a time of {us}": (["--out", "x.svg", f"us{us}.csv"], [f"us{us}.csv", "row 4", f"p50_us is '{us}'", "above 0"])
       for us in ("0", "-5", "inf", "nan", "fast")},
    "less than no bytes": (["--out", "x.svg", "less.csv"], ["less.csv", "row 4", "bytes is '-8'", "0 or more"]),
    "no ranks": (["--out", "x.svg", "nobody.csv"], ["nobody.csv", "row 4", "ranks is '0'", "1 or more"]),
    "one size": (["--out", "x.svg", "single.csv"], ["single.csv", "two sizes"]),
    "nobody's ranks": (["--out", "x.svg", "--ranks", "9", "raw.csv"], ["raw.csv", "allreduce on 2 ranks"]),
    "ranks in words": (["--out", "x.svg", "--ranks", "two", "raw.csv"], ["--ranks", "'two'"]),
}


# A table as the command writes it, to which a row comes.
OURS = "\n".join(["collective,ranks,bytes,dtype,op,p50_us,p50_rank0_us", *(f"allreduce,2,{size},float32,sum,9,9" for size in (8, 64, 512))])
ROWS = {
    **{f"us{us}": f"allreduce,2,8,float32,sum,{us},9" for us in ("0", "-5", "inf", "nan", "fast")},
    "untimed": "allreduce,2,8,float32,sum,,",
    "less": "allreduce,2,-8,float32,sum,9,9",
    "nobody": "allreduce,0,8,float32,sum,9,9",
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_drawn_is_told(plot, case, tmp_path, monkeypatch):
    words, told = WRONG[case]
    table = peers(1)
    (tmp_path / "raw.csv").write_text(table)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "words.csv").write_text(table.replace(",1024,9,", ",many,9,", 1))
    (tmp_path / "cut.csv").write_text("\n".join([*table.splitlines()[:4], "1,2,muster,1,allreduce"]))
    (tmp_path / "single.csv").write_text("\n".join(line for line in table.splitlines() if ",1024,9," not in line and ",65536,9," not in line))
    (tmp_path / "no_runs.csv").write_text(table.replace("program,run,", "program,turn,"))
    (tmp_path / "endless.csv").write_text(f"{table}{'9' * 200_000}\n")
    for name, row in ROWS.items():
        (tmp_path / f"{name}.csv").write_text(f"{OURS}\n{row}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        plot.main(words)
    sentence = ended.value.code
    assert sentence.startswith("muster.plot: ") and len(sentence.splitlines()) == 1, sentence
    assert all(word in sentence for word in told), sentence
    assert not list(tmp_path.glob("x.*"))


def without_matplotlib(folder):
    (folder / "matplotlib.py").write_text("raise ImportError(\"No module named 'matplotlib'\")\n")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{BINDINGS}"}


# By what is missing: the environment, words, and what is said.
REFUSED = {
    "matplotlib": (without_matplotlib, "x.svg", "-m pip install matplotlib"),
    "the package": (lambda folder: {"PYTHONPATH": folder}, "x.svg", "install the wheel that came with this command"),
    "Python": (lambda folder: {"PATH": folder}, "x.svg", "python3: No such file"),
    "an ending": (lambda folder: {}, "x", "must end with .svg or .png"),
}


@pytest.mark.parametrize("missing", REFUSED)
def test_the_command_says_so_before_it_measures(missing, tmp_path):
    env, picture, told = REFUSED[missing]
    out, errors = bench("allreduce", *TINY, "--plot", tmp_path / picture, code=1, env=env(tmp_path))
    assert out == "", "nothing was measured"
    assert errors.startswith("muster bench: --plot") and told in errors and len(errors.splitlines()) == 1
    assert not re.search("install '?muster", errors), "another project has that name on PyPI"


@pytest.mark.parametrize("words,told", [(["barrier", "--plot", "x.svg"], "--plot means nothing to barrier"),
                                        (["allreduce", "--beside", "raw.csv"], "--beside means nothing without --plot"),
                                        (["allreduce", "--sizes", "1G", "--plot", "x.svg"], "the only size is 1073741824: expected two")])
def test_a_wrong_command_line_is_told(words, told):
    assert told in bench(*words, "--worker_num", "2", code=2)[1]
