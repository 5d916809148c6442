"""What gpu.py and its cases share: a peer that runs as a process and waits to be told what to time, our command, medians, and where
JSON lines go. Uses the standard library alone."""
import json
import pathlib
import statistics
import subprocess
import sys
import threading


def say(text=""):
    print(text, file=sys.stderr, flush=True)


class Out:
    """Where JSON lines go."""

    def __init__(self, path):
        self.file = open(path, "a") if path else sys.stdout

    def line(self, fields):
        print(json.dumps(fields), file=self.file, flush=True)


class Process:
    """A peer that has compiled what it is asked to time. Its first line of JSON says that it is ready, each further one answers a
    command on its standard input. An answer that takes longer than limit_s ends it."""

    def __init__(self, label, command, work, env=None, limit_s=None):
        self.label, self.limit_s, self.times = label, limit_s, []
        self.errors = open(pathlib.Path(work) / f"{label.replace(' ', '-')}.log", "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=env)

    def answer(self):
        """The next line of JSON; None when the process has ended, with its last words said."""
        timer = threading.Timer(self.limit_s, self.process.kill) if self.limit_s else None
        if timer:
            timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            if timer:
                timer.cancel()
        self.process.wait()
        self.errors.seek(0)
        late = f"ended after {self.limit_s:.0f} s without an answer: " if timer and self.process.returncode == -9 else ""
        say(f"  {self.label}: {late}{' '.join(self.errors.read().split()[-60:])[-700:]}")
        return None

    def ask(self, words):
        try:
            self.process.stdin.write(words + "\n")
            self.process.stdin.flush()
        except OSError:
            pass
        return self.answer()

    def close(self):
        if self.process.poll() is None:
            try:
                self.process.stdin.write("quit\n")
                self.process.stdin.close()
                self.process.wait(30)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
        self.errors.close()


def run_lines(command):
    """(lines of JSON, what it said on standard error)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines, done.stderr.strip()


def middle(values):
    """Median and half the distance of the quartiles."""
    if len(values) < 2:
        return values[0], 0.0
    q = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), (q[2] - q[0]) / 2
