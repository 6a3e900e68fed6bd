"""Draws what `muster bench` has measured: latency and bandwidth over size. `muster bench --plot` calls it; it also runs alone:

    muster bench allreduce --worker_num 4 --format csv > now.csv
    python3 -m muster.plot --out allreduce.svg,allreduce.png now.csv before.csv target/bench/raw.csv

Each file is what `muster bench ... --format csv` has written, or `make bench-peers`, which has its peers, too. `-` is the standard
input. There is a row of panels for each collective and number of ranks of the first file, and a line in it for each program of
each file. A line is the median. Where a file has several passes, the band around it is from the first to the third quartile.

It needs matplotlib: `python3 -m pip install matplotlib`.
"""

import argparse
import csv
import math
import pathlib
import statistics
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

__all__ = ["main"]

ENDINGS = (".svg", ".png")
# The names of programs in the file of `make bench-peers`, which has most of them in memory and over TCP.
PROGRAMS = {
    "shm_floor": "yardstick",
    "muster_memory": "muster",
    "openmpi_memory": "Open MPI",
    "mpich": "MPICH",
    "intelmpi": "Intel MPI",
    "intelmpi_sleep": "Intel MPI, sleeping",
    "muster_tcp": "muster, MUSTER_SHM=off",
    "yardstick": "yardstick over TCP",
    "muster": "muster over TCP",
    "openmpi": "Open MPI over TCP",
    "gloo": "Gloo over TCP",
}
# Colours that people tell apart who see few, and marks for print without colours.
STYLES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#555555", "x"), ("#cc79a7", "D"), ("#e69f00", "v"), ("#56b4e9", "P"))
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SLOWEST, OWN = "p50_us", "p50_rank0_us"
COLUMNS = {"collective", "ranks", "bytes", SLOWEST, OWN}
# What a table has beside them: that of the command, and that of `make bench-peers`.
OF_COMMAND, OF_PEERS = {"dtype", "op"}, {"pass", "beside", "program", "run", "algorithm"}


class PlotError(Exception):
    """What cannot be drawn, and what would be right."""


@dataclass(frozen=True)
class Case:
    """What a row of panels is about."""

    collective: str
    ranks: int


@dataclass
class Series:
    """What one program took, by size: for each size and column the times of all passes, in microseconds."""

    case: Case
    label: str
    times: Dict[int, Dict[str, List[float]]]

    def has(self, column: str) -> bool:
        """Whether each size was measured so."""
        return all(columns[column] for columns in self.times.values())


# Reading


def read(path: str) -> List[Series]:
    """The series of a file; of `-`, the standard input. Raises `PlotError` where it is neither of the two kinds."""
    try:
        text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PlotError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        table = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
        columns, rows = set(table.fieldnames or ()), list(table)
    except csv.Error as error:
        raise PlotError(f"{path}: is no table: {error}") from error
    of_peers = COLUMNS | OF_PEERS <= columns
    if not of_peers and not COLUMNS | OF_COMMAND <= columns:
        raise PlotError(
            f"{path}: is no table of results: expected what muster bench COLLECTIVE --format csv or make bench-peers has written"
        )
    found: Dict[Tuple[Case, str, str], Series] = {}
    for number, row in enumerate(rows, 1):
        try:
            _take(found, row, of_peers)
        except ValueError as error:
            raise PlotError(f"{path}: row {number} of the results: {error}") from error
    order = {name: number for number, name in enumerate(PROGRAMS.values())}
    series = sorted((one for one in _best(found) if len(one.times) > 1), key=lambda one: order.get(one.label, 0))
    if not series:
        raise PlotError(f"{path}: nothing to draw: no collective in it has two sizes or more")
    return series


def _take(found: Dict[Tuple[Case, str, str], Series], row: Dict[str, str], of_peers: bool) -> None:
    if of_peers:
        label, algorithm = PROGRAMS.get(row["program"], ""), row["algorithm"]
        if row["collective"] not in _FACTORS or not label or row["run"] != "1":  # such as a start, or a link
            return
        ranks = _number(row, "beside")
        if _number(row, "ranks") != ranks:  # a yardstick that ran on more ranks than the others
            return
    else:
        kind = f"{row['dtype']} {row['op']}"
        plain = kind == "float32 sum" or row["op"] == "none" and row["dtype"] == "float32"
        label, algorithm, ranks = "muster" if plain else f"muster, {kind.replace(' none', '')}", "", _number(row, "ranks")
    case = Case(row["collective"], ranks)
    if case.collective not in _FACTORS:
        raise ValueError(f"collective is {case.collective!r}: expected one of {', '.join(_FACTORS)}")
    size = _number(row, "bytes", least=0)
    here = {column: _time(row, column) for column in (SLOWEST, OWN) if row[column]}
    if not here:
        raise ValueError(f"{SLOWEST} and {OWN} are both empty: expected a time in one of them")
    series = found.setdefault((case, label, algorithm), Series(case, label, {}))
    times = series.times.setdefault(size, {SLOWEST: [], OWN: []})
    for column, us in here.items():
        times[column].append(us)


def _number(row: Dict[str, str], name: str, least: int = 1) -> int:
    try:
        number = int(row[name])
    except (TypeError, ValueError):  # a row that was cut has none
        raise ValueError(f"{name} is {row[name]!r}: expected a number") from None
    if number < least:
        raise ValueError(f"{name} is {row[name]!r}: expected {least} or more")
    return number


def _time(row: Dict[str, str], name: str) -> float:
    """Microseconds: more than none, for the axis is a logarithm."""
    try:
        us = float(row[name])
    except ValueError:
        us = math.nan
    if not 0 < us < math.inf:
        raise ValueError(f"{name} is {row[name]!r}: expected a number above 0")
    return us


def _best(found: Dict[Tuple[Case, str, str], Series]) -> Iterable[Series]:
    """Of a program's algorithms that with the least median, for each size."""
    best: Dict[Tuple[Case, str], Series] = {}
    for series in found.values():
        chosen = best.setdefault((series.case, series.label), Series(series.case, series.label, {}))
        for size, times in series.times.items():
            before = chosen.times.get(size)
            if before is None or _least(times) < _least(before):
                chosen.times[size] = times
    return best.values()


def _least(times: Dict[str, List[float]]) -> float:
    values = times[SLOWEST] or times[OWN]
    return statistics.median(values) if values else float("inf")


# What is drawn

# All data of the operation by the size, and the share of it that the link of each of so many ranks carries at least: as nccl-tests counts.
_FACTORS: Dict[str, Any] = {
    "allreduce": lambda ranks: (1, 2 * (ranks - 1) / ranks),
    **dict.fromkeys(("broadcast", "reduce", "sendrecv"), lambda ranks: (1, 1)),
    **dict.fromkeys(("allgather", "reduce_scatter", "alltoall", "gather", "scatter"), lambda ranks: (ranks, (ranks - 1) / ranks)),
    "barrier": lambda ranks: (0, 0),
}


def bandwidth(case: Case, size: int, us: float) -> float:
    """What each rank's link carries at least, in GB/s."""
    whole, share = _FACTORS[case.collective](case.ranks)
    return float(whole * share * size / us / 1000)


def written(size: int) -> str:
    """A size as people write it."""
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def choose(files: Sequence[Tuple[str, List[Series]]], collectives: Sequence[str], ranks: Sequence[int]) -> Dict[Case, List[Series]]:
    """The series by case: the cases of the first file, those wanted, and what the other files have of them."""
    rows: Dict[Case, List[Series]] = {}
    for number, (path, found) in enumerate(files):
        for series in found:
            wanted = (not collectives or series.case.collective in collectives) and (not ranks or series.case.ranks in ranks)
            if not wanted or (number > 0 and series.case not in rows):
                continue
            row = rows.setdefault(series.case, [])
            if any(other.label == series.label for other in row):
                series = Series(series.case, f"{series.label} ({pathlib.Path(path).stem})", series.times)
            row.append(series)
    if not rows:
        there = sorted({f"{series.case.collective} on {series.case.ranks} ranks" for series in files[0][1]})
        raise PlotError(f"{files[0][0]}: nothing of it is wanted: it has {', '.join(there)}")
    return rows


def _column(row: Sequence[Series]) -> str:
    """The slowest rank's times; rank 0's where one of the programs knows only those."""
    return SLOWEST if all(series.has(SLOWEST) for series in row) else OWN


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        raise PlotError(f"matplotlib is missing ({error}): install it with {sys.executable} -m pip install matplotlib") from error
    return matplotlib


def draw(rows: Dict[Case, List[Series]], outputs: Sequence[str]) -> None:
    """Draws a row of panels for each case, and writes it to each of the files, whose endings say how."""
    matplotlib = _matplotlib()
    # Text stays text, and the same figures give the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "muster", "font.size": 9}):
        figure = matplotlib.figure.Figure(figsize=(10, 0.4 + 3.2 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), 2, squeeze=False)
        for (case, row), (left, right) in zip(rows.items(), panels):
            _row(case, row, left, right)
        for output in outputs:
            dated = {"Date": None} if output.endswith(".svg") else {}
            try:
                figure.savefig(output, dpi=150, metadata=dated)
            except OSError as error:
                raise PlotError(f"{output}: cannot be written: {error.strerror or error}") from error


def _row(case: Case, row: Sequence[Series], left: Any, right: Any) -> None:
    column = _column(row)
    sizes = sorted({size for series in row for size in series.times})
    has_bandwidth = case.ranks > 1
    for number, series in enumerate(row):
        color, marker = STYLES[number % len(STYLES)]
        stroke = "-" if number < len(STYLES) else "--"
        times = {size: columns[column] for size, columns in sorted(series.times.items()) if columns[column]}
        middle, low, high = ([_quantile(values, at) for values in times.values()] for at in (0.5, 0.25, 0.75))
        panels: List[Any] = [(left, lambda size, us: us)]
        if has_bandwidth:
            panels.append((right, lambda size, us: bandwidth(case, size, us)))
        for panel, of in panels:
            values = [[of(size, us) for size, us in zip(times, times_us)] for times_us in (middle, low, high)]
            panel.plot(list(times), values[0], color=color, marker=marker, linestyle=stroke, markersize=4, linewidth=1.4, label=series.label)
            if values[1] != values[2]:
                panel.fill_between(list(times), values[1], values[2], color=color, alpha=0.15, linewidth=0)
    of_whom = "the slowest rank" if column == SLOWEST else "rank 0"
    _panel(left, sizes, f"{case.collective} on {case.ranks} {'ranks' if case.ranks > 1 else 'rank'}: time", f"us a call, on {of_whom}")
    left.set_yscale("log")
    left.minorticks_off()
    left.yaxis.set_major_formatter(lambda us, _: f"{us:,g}")
    left.legend(frameon=False)
    if has_bandwidth:
        _panel(right, sizes, f"{case.collective} on {case.ranks} ranks: bandwidth", "GB/s that each rank's link carries")
        right.set_ylim(bottom=0)
    else:
        right.set_axis_off()  # one rank moves nothing


def _quantile(values: Sequence[float], at: float) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.median(values) if at == 0.5 else statistics.quantiles(values, n=4, method="inclusive")[0 if at < 0.5 else 2]


def _panel(panel: Any, sizes: Sequence[int], title: str, measure: str) -> None:
    # A size of nothing has its place, too, left of one byte.
    panel.set_xscale("symlog", base=2, linthresh=1) if sizes[0] == 0 else panel.set_xscale("log", base=2)
    step = -(-len(sizes) // 8)  # as many names as find room
    panel.set_xticks(sizes[::step], [written(size) for size in sizes[::step]], rotation=30)
    panel.minorticks_off()
    panel.set_title(title, fontsize=10, loc="left")
    panel.set_ylabel(measure)
    panel.grid(True, which="major", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


# The command line


def _check_outputs(outputs: Sequence[str]) -> None:
    for output in outputs:
        if not output.endswith(ENDINGS):
            raise PlotError(f"{output or 'an empty name'}: a picture's name must end with {' or '.join(ENDINGS)}")
        folder = pathlib.Path(output).parent
        if not folder.is_dir():
            raise PlotError(f"{output}: there is no folder {folder}")


def _ranks(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise PlotError(f"--ranks: {word!r} is no number of ranks, as in --ranks 2,4,8") from None


def main(words: Optional[Sequence[str]] = None) -> None:
    """Runs the command line; ends the process with 1 and a sentence where something cannot be drawn."""
    parser = argparse.ArgumentParser(prog="python3 -m muster.plot", description="Draws latency and bandwidth over size.")
    parser.add_argument("--out", required=True, metavar="FILE,...", help="the pictures, each .svg or .png")
    parser.add_argument("--collectives", default="", metavar="NAME,...", help="only these")
    parser.add_argument("--ranks", default="", metavar="N,...", help="only these numbers of ranks")
    parser.add_argument("--check", action="store_true", help="reads, finds matplotlib, and draws nothing")
    parser.add_argument("files", nargs="*", help="results: of muster bench --format csv, or of make bench-peers; - is the standard input")
    options = parser.parse_args(words)
    try:
        outputs = options.out.split(",")
        _check_outputs(outputs)
        files = [(path, read(path)) for path in options.files]
        if options.check:
            _matplotlib()
            return
        if not files:
            raise PlotError("no file of results was named")
        collectives = options.collectives.split(",") if options.collectives else []
        ranks = [_ranks(word) for word in options.ranks.split(",")] if options.ranks else []
        draw(choose(files, collectives, ranks), outputs)
    except PlotError as error:
        sys.exit(f"muster.plot: {error}")


if __name__ == "__main__":
    main()
