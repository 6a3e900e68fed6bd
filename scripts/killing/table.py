"""The table of a run: one line per blow."""

from .job import SCHEDULER

HEAD = ("kill", "step", "who", "doing", "noticed", "restarted", "back", "repeated")
FOOT = """\
noticed    ms from the kill to the first survivor's error (nobody notices a scheduler; all at once leave nobody)
restarted  ms from the kill to the first line of the next life's main() (of the last one, where several died)
back       ms from there to its first step done, or, at the end, to the end (too late: all have finished, and left)
repeated   steps that were done, and had to be done again"""


def who(victims):
    ranks = sorted(name for name in victims if name != SCHEDULER)
    words = ["scheduler"] if SCHEDULER in victims else []
    return " + ".join(words + ([f"rank {', '.join(map(str, ranks))}"] if ranks else []))


def figure(value, form):
    return "-" if value is None else format(value, form)


def table(rows):
    lines = [HEAD]
    for number, row in enumerate(rows, 1):
        lines.append((str(number), str(row["step"]), who(row["who"]), row["doing"], figure(row["noticed"], ".1f"),
                      figure(row.get("restarted"), ".1f"), figure(row.get("back"), ".1f"),
                      figure(row.get("repeated"), "d")))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    left = (2, 3)
    text = ["  ".join(cell.ljust(width) if column in left else cell.rjust(width)
                      for column, (cell, width) in enumerate(zip(line, widths))) for line in lines]
    slowest = max((row["back"] for row in rows if row.get("back") is not None), default=None)
    return "\n".join([*text, FOOT, f"{sum(len(row['who']) for row in rows)} processes were killed; the slowest return took "
                                   f"{figure(slowest, '.1f')} ms"])
