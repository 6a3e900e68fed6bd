"""Everything that a run measured, as one CSV file from which the page can be made again.

Lines that begin with # tell of the run as `# name: value`: the machine, the command, and what failed.

    pass        the pass, from 1
    beside      the number of ranks of the comparison that the row belongs to; the yardstick may have run on more
    program     yardstick, muster, openmpi, gloo, loopback over TCP; within a host shm_floor, muster_memory, muster_tcp, openmpi_memory,
                mpich, intelmpi, intelmpi_sleep; plain and exact sums exact_memory, exact_tcp
    run         1, or 2 for the yardstick's second run of the same pass
    collective, algorithm, ranks, bytes, iterations
    p50_rank0_us, p50_us    the median on rank 0, and on the slowest rank
    mean_rank0_us, mean_us  the mean on each, where the program tells it

Of a forming, ranks are nodes, bytes is what the scheduler holds for one, p50_us is the time until all had their places,
and p50_rank0_us what the scheduler computed. Of waits, algorithm is the way of waiting, bytes is the number of competitors,
p50_rank0_us the median on rank 0, and p50_us the mean there.
"""

import csv

MEANS = ("mean_rank0_us", "mean_us")
COLUMNS = ("pass", "beside", "program", "run", "collective", "algorithm", "ranks", "bytes", "iterations", "p50_rank0_us",
           "p50_us", *MEANS)


class Writer:
    """Writes each row at once, so that what was measured is there when a run is broken off."""

    def __init__(self, path, facts):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "w", newline="")
        for name, value in facts.items():
            self.tell(name, value)
        self._rows = csv.DictWriter(self._file, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        self._rows.writeheader()

    def tell(self, name, value):
        self._file.write(f"# {name}: {' '.join(str(value).split())}\n")
        self._file.flush()

    def rows(self, rows, **place):
        for row in rows:
            self._rows.writerow({**row, **place})
        self._file.flush()

    def close(self):
        self._file.close()


class Raw:
    """What a file holds: `facts` by name (a list of values each) and `rows` with numbers where numbers belong."""

    def __init__(self, path):
        self.facts, lines = {}, []
        for line in path.read_text().splitlines():
            if line.startswith("# "):
                name, _, value = line[2:].partition(": ")
                self.facts.setdefault(name, []).append(value)
            else:
                lines.append(line)
        self.rows = [self._numbers(row) for row in csv.DictReader(lines)]

    @staticmethod
    def _numbers(row):
        for name in ("pass", "beside", "run", "ranks", "bytes", "iterations"):
            row[name] = int(row[name] or 0)
        for name in ("p50_rank0_us", "p50_us", *MEANS):
            row[name] = float(row[name]) if row.get(name) else None  # files from before there were means have none
        return row

    def fact(self, name):
        return self.facts.get(name, ["unknown"])[0]

    def by_pass(self, measure, **wanted):
        """The measure by pass of the rows in which each of `wanted` is so."""
        fits = (row for row in self.rows if all(row[name] == value for name, value in wanted.items()))
        return {row["pass"]: row[measure] for row in fits if row[measure] is not None}

    def values(self, name, **wanted):
        """All values of a column in such rows, each once, in order."""
        return sorted({row[name] for row in self.rows if all(row[key] == value for key, value in wanted.items())})
