"""What two programs' times of the same passes come to."""

import statistics


def quartiles(values):
    """The first and the third; of fewer than four values the least and the most."""
    values = sorted(values)
    if len(values) < 4:
        return values[0], values[-1]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def spread(by_pass):
    """The median and the quartiles in words."""
    low, high = quartiles(by_pass.values())
    return f"{statistics.median(by_pass.values()):.2f} ({low:.2f} to {high:.2f})"


class Ratio:
    """One time by the other, pass by pass."""

    def __init__(self, by_pass):
        self.by_pass = by_pass
        self.median = statistics.median(by_pass.values())

    @staticmethod
    def of(times, by):
        """None where no pass has both."""
        both = {number: times[number] / by[number] for number in times.keys() & by.keys()}
        return Ratio(both) if both else None

    @property
    def difference(self):
        """By how much the larger of the two exceeds the smaller, as the median over the passes."""
        return statistics.median(max(ratio, 1 / ratio) for ratio in self.by_pass.values()) - 1

    def __str__(self):
        return spread(self.by_pass)
