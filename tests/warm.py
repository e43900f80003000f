"""Processes that begin with everything imported: each is forked from one that imported it, which saves seconds."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_PARENT = """
import json, os, sys
import sklearn.datasets
import coldstream.cli, coldstream.report.pages, coldstream.learners

for line in sys.stdin:
    order = json.loads(line)
    if "pid" in order:
        pid, status = os.waitpid(order["pid"], 0 if order["wait"] else os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        break
    print(pid, flush=True)
else:
    os._exit(0)

os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(os.open(order["out"], os.O_WRONLY), 1)
os.dup2(os.open(order["err"], os.O_WRONLY), 2)
os.chdir(order["cwd"])
os.environ.update(order["env"])
sys.argv = ["-c", *order["arguments"]]
sys.path.insert(0, "")
exec(order["code"])
"""


class Process:
    """One of them, with what matters of subprocess.Popen."""

    def __init__(self, warm, pid, out, err):
        self.pid = pid
        self._warm, self._out, self._err = warm, out, err
        self.returncode = None

    def poll(self, *, wait=False):
        if self.returncode is None:
            self.returncode = self._warm._ask(pid=self.pid, wait=wait)
        return self.returncode

    def wait(self):
        """Return how it ended, what it said and what it complained about."""
        self.poll(wait=True)
        return self.returncode, self._out.read_text(), self._err.read_text()

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)
        self.wait()


class Warm:
    """The process that the others are forked from; a context, at whose end it ends."""

    def __enter__(self):
        self._folder = TemporaryDirectory()
        self._count = 0
        env = {**os.environ, "COLUMNS": "140", "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._parent = subprocess.Popen([sys.executable, "-c", _PARENT], env=env, **pipes)
        return self

    def __exit__(self, *error):
        self._parent.stdin.close()
        self._parent.stdout.close()
        self._parent.wait()
        self._folder.cleanup()

    def start(self, code, *arguments, cwd=".", env=None):
        """Run code in a new process, which finds the arguments in sys.argv."""
        self._count += 1
        out, err = (Path(self._folder.name, f"{kind}{self._count}") for kind in ("out", "err"))
        out.touch()
        err.touch()
        given = {"code": code, "arguments": list(map(str, arguments)), "cwd": str(cwd), "env": env or {}}
        return Process(self, self._ask(**given, out=str(out), err=str(err)), out, err)

    def _ask(self, **order):
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())
