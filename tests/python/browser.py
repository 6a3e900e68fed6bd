"""A browser without a window, which a test asks what a page shows.

    with Browser(folder) as browser:
        browser.open("http://127.0.0.1:8000/")
        browser.wait_for("document.title == 'ready'", timeout=60)

It is Chromium, asked by its DevTools protocol over two pipes: one JSON object after another, each with a zero byte behind it.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WORDS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", "--window-size=1600,900"]
ANSWER_S = 60


class Browser:
    def __init__(self, folder):
        """`folder` is for its profile."""
        ours, theirs = os.pipe(), os.pipe()
        # It reads from 3 and writes to 4, where other descriptors may still be.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1])]
        words = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", CHROMIUM, *WORDS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(words, pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for end in (ours[0], theirs[1], *ends):
            os.close(end)
        self._to, self._from, self._read, self._asked, self._session = ours[1], theirs[0], b"", 0, None

    def __enter__(self):
        try:
            target = self._ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Its own processes are of its session.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def open(self, address):
        self._ask("Page.navigate", url=address)

    def evaluate(self, expression):
        """The value of this expression of JavaScript in the page."""
        result = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, expression, timeout):
        """Asks until the expression is true."""
        deadline = time.monotonic() + timeout
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"not within {timeout} s: {expression}; the page shows: {self.text()[:2000]}"
            time.sleep(0.1)
        return value

    def text(self):
        """All that the page shows in words."""
        return self.evaluate("document.body ? document.body.innerText : ''")

    def picture(self, path):
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def _ask(self, method, **words):
        self._asked += 1
        question = {"id": self._asked, "method": method, "params": words}
        if self._session:
            question["sessionId"] = self._session
        os.write(self._to, json.dumps(question).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            told = self._next(deadline)
            if told.get("id") == self._asked:
                assert "error" not in told, told["error"]
                return told["result"]

    def _next(self, deadline):
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser has not answered for {ANSWER_S} s"
            read = os.read(self._from, 1 << 16)
            assert read, f"the browser has ended with {self._process.wait(timeout=10)}"
            self._read += read
        told, _, self._read = self._read.partition(b"\0")
        return json.loads(told)
