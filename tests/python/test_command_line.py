"""The manual page and the shell's completion, as `muster man` and `muster completion bash` give them."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from cluster import MUSTER, clean_environment

LIMIT = 60
# What the manual page has of each command: an option that only this one has.
ONLY = {"run": "--tail_worker_log", "stop": "--grace", "bench": "--in_place", "bench forming": "--processes", "status": "--sched_host",
        "certs node": "--renew", "trace merge": "--job"}


def muster(*words, **options):
    return subprocess.run([MUSTER, *words], capture_output=True, text=True, timeout=LIMIT, **options)


def test_every_command_has_its_section_in_the_manual_page_and_its_help():
    known = re.search(r": the commands are ([\w, -]+) and --version\n", muster("nothing").stderr)[1]
    commands = [word for word in known.split(", ") if not word.startswith("--")]
    page = muster("man").stdout
    assert len(commands) > 6 and [word for word in commands if f'.SH "MUSTER {word.upper()}"' not in page] == []
    assert [word for word in commands if muster(word, "--help").returncode != 0] == []
    asked = {words: muster("help", *words.split()) for words in ("run", "certs new", "trace merge")}
    assert [words for words, said in asked.items() if said.stdout != muster(*words.split(), "--help").stdout or said.returncode != 0] == []
    assert "there is no command \"nonsense\"" in muster("help", "nonsense").stderr


@pytest.mark.parametrize(
    "words, code",
    [([], 2), (["nothing"], 2), (["certs"], 2), (["certs", "new", "--nothing"], 2), (["trace"], 2),
     (["status", "--sched_port=1024", "--timeout=1"], 4), (["status", "--nothing"], 2), (["ranktable", "--nothing"], 2)],
)
def test_an_output_that_takes_nothing_changes_no_exit_code(words, code):
    with open("/dev/full", "w") as full:
        assert subprocess.run([MUSTER, *words], stdout=full, stderr=full, timeout=LIMIT, env=clean_environment()).returncode == code


@pytest.mark.parametrize("words", [["man"], ["completion", "bash"], ["bench", "barrier", "--iters=1", "--warmup=1"],
                                   ["bench", "store", "--iters=1"], ["status", "--format=prometheus", "--sched_port=1024"],
                                   ["--help"], ["--version"], *([*name.split(), "--help"] for name in (
                                       "run", "ps", "stop", "bench", "scheduler", "status", "ranktable", "trace", "trace merge",
                                       "certs", "certs new", "man"))])
def test_a_result_that_a_full_disk_does_not_take_is_an_error_and_one_that_nobody_reads_is_none(words):
    settings = {"stderr": subprocess.PIPE, "text": True, "timeout": LIMIT, "env": clean_environment()}
    with open("/dev/full", "w") as full:
        ended = subprocess.run([MUSTER, *words], stdout=full, **settings)
    assert ended.returncode == 1 and "standard output cannot be written: No space left" in ended.stderr, ended
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        assert subprocess.run([MUSTER, *words], stdout=closed, **settings).returncode == (4 if words[1:2] == ["--format=prometheus"] else 0)


def test_words_for_a_shell_that_a_full_disk_does_not_take_are_an_error():
    with open("/dev/full", "w") as full:
        ended = subprocess.run([MUSTER, "completion", "--answer"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                               env=clean_environment({"COMP_LINE": "muster r", "COMP_POINT": "8"}))
    assert ended.returncode == 1 and "standard output cannot be written: No space left" in ended.stderr, ended


@pytest.mark.parametrize("words, said", [
    (["scheduler", "foo"], "takes no words"), (["man", "foo"], "takes no words"), (["status", "--output="], "--output is empty"),
    (["trace", "merge", ""], "which folder?"), (["bench", "barrier", "foo"], "takes one"),
])
def test_a_word_too_many_or_an_empty_one_is_explained(words, said):
    ended = muster(*words)
    assert ended.returncode == 2 and said in ended.stderr, ended


# A machine need not have groff. What the page consists of, the unit tests of cli/man.rs hold everywhere.
@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed: nothing here can render a manual page")
def test_the_manual_page_renders_without_a_warning():
    page = muster("man")
    assert (page.returncode, page.stderr) == (0, "")
    groff = ["groff", "-man", "-Tutf8", "-ww", "-P-c"]
    shown = subprocess.run(groff, input=page.stdout, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert shown.stderr == ""
    # Bold is a letter written twice at the same place.
    text = re.sub(".\b", "", shown.stdout)
    for command, option in ONLY.items():
        assert option in text and f"MUSTER {command.upper()}" in text, text


def offered(line):
    """What the shell is told to offer at the end of this line."""
    asked = muster("completion", "--answer", env={**clean_environment(), "COMP_LINE": line, "COMP_POINT": str(len(line))})
    assert (asked.returncode, asked.stderr) == (0, "")
    return asked.stdout.split()


def test_every_option_of_the_help_is_completed():
    benches = ["bench", "bench bootstrap", "bench forming", "bench iallreduce", "bench store"]
    for command in ["run", *benches, "status", "ps", "stop", "trace merge", "certs new", "certs revoke"]:
        options = offered(f"muster {command} --")
        assert len(options) >= 2
        page = muster(*command.split(), "--help").stdout
        assert [option for option in options if option not in page] == []


# How each shell is started without the user's files, and how it takes the script.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(muster completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(muster completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "muster completion fish | source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_a_word(shell, tmp_path):
    """A real shell on a terminal of its own: a line, and the key that completes it."""
    words, takes_script = SHELLS[shell]
    # A machine need not have every shell. What the scripts consist of, the unit tests of cli/completion.rs hold everywhere.
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: nothing here can try its script")
    env = {**clean_environment(), "PATH": f"{os.path.dirname(MUSTER)}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe(shell, words, env)
    try:
        os.write(terminal, f"{takes_script}; echo rea''dy\n".encode())
        await_text(terminal, "ready")
        os.write(terminal, b"echo muster; muster bench allre\t")
        await_text(terminal, "bench allreduce ")
        os.write(terminal, b"--op=av\t")
        await_text(terminal, "--op=avg")
    finally:
        os.kill(child, 9)
        os.close(terminal)
        os.waitpid(child, 0)


def await_text(terminal, text):
    """Reads until the terminal has shown this."""
    shown, deadline = "", time.monotonic() + LIMIT
    while text not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["completion"], "for which shell? expected bash, zsh or fish"),
        (["completion", "tcsh"], 'there is no script for "tcsh": expected bash, zsh or fish'),
        (["man", "run"], '"run" is not expected'),
    ],
)
def test_a_wrong_command_line_is_explained(words, said):
    ended = muster(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
