"""What lies in the memory of a process that lives, as the kernel shows it."""

import pathlib
import re


class Mapping:
    """A part of a process's memory that can be written, what it holds, and its flags."""

    def __init__(self, name, flags, content):
        self.name, self.flags, self.content = name, flags, content


def writable(pid):
    """All parts that can be written: heaps, stacks, and what libraries keep."""
    head = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)$")
    found = []
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if match := head.match(line):
                start, end, rights, name = int(match[1], 16), int(match[2], 16), match[3], match[4]
            elif line.startswith("VmFlags:") and "w" in rights:
                memory.seek(start)
                found.append(Mapping(name or "anonymous", line.split()[1:], memory.read(end - start)))
    return found


def where(mappings, secret):
    """The parts in which it lies, one entry for each time."""
    return [part for part in mappings for _ in range(part.content.count(secret))]
