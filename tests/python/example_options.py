"""The options that several examples have, and words that they must refuse."""

import subprocess

from cluster import clean_environment

WRONG_STEPS = [("--steps",), ("--steps", "abc"), ("--steps", "5x"), ("--steps", ""), ("--steps", "0"), ("--steps", "99999999999")]
WRONG_LOSSES = [("--lose", "abc", "step"), ("--lose", "-1", "step"), ("--lose", "1", "setp"), ("--lose", "99999999999", "step"), ("--loose",)]


def usage_is_told(program, words, options):
    """The program refuses these words before it begins: alone it would be a cluster of one."""
    done = subprocess.run([program, *words], env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"usage: {program.name} {options}\n")
