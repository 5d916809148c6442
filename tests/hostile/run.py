#!/usr/bin/env python3
"""Opens every artefact of make.py by every command of commands.txt that takes such a thing, and from Python. Demanded of each:

- it ends by itself within the limit, with 0 where the artefact allows it, else with 2, 3 or 6 and one line "error: ...";
- nothing it prints can steer a terminal (but the text that a model made);
- its largest resident set is that of the same command on a valid file, and twice the artefact and 16 MiB (P6);
- what lies around the artefact is as before: names, types, modes, contents; the artefact too, but for commands that change it;
- of all its system calls (strace) none writes, makes, renames or removes elsewhere, starts a program or opens a socket;
- the marker that hostile code leaves is not there.

    run.py WORK GOOD TENON [ARTEFACT[:COMMAND] ...]      GOOD: see tests/long/hostile.sh
"""
import fnmatch
import hashlib
import json
import multiprocessing
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys

import make
from artefacts import ARTEFACTS, ESC

HERE = os.path.dirname(os.path.realpath(__file__))
LIMIT_S, ROOM_KIB = int(os.environ.get("TENON_HOSTILE_LIMIT", 20)), 16 << 10
ALWAYS = {2, 3, 6}
TEXT_OF_MODELS = ("sample", "sample-*", "chat", "chat-*", "race", "wire-decode*", "wire-reader")  # their standard output is what a model wrote
CALLS = ("open openat openat2 creat unlink unlinkat rmdir rename renameat renameat2 mkdir mkdirat link linkat symlink symlinkat truncate chmod "
         "fchmod fchmodat fchmodat2 chown lchown fchown fchownat mknod mknodat utimensat setxattr lsetxattr fsetxattr execve execveat socket mount "
         "umount2 pivot_root chroot").split()


class Command:
    """A row of commands.txt, where its marks are explained."""

    def __init__(self, line):
        name, kinds, how, words = (part.strip() for part in line.split("|", 3))
        self.name, self.kinds, self.words = name, kinds.split(), shlex.split(words)
        self.writes, self.unfit, self.starts, self.fine = ("w" in how, "!" in how, "x" in how, "0" in how)


def read_commands():
    with open(f"{HERE}/commands.txt") as f:
        return [Command(line) for line in f if line.strip() and not line.startswith("#")]


# --- what is there ------------------------------------------------------------------------------------------------------------


def picture(root, into=None):
    """Every name below root with its type, mode and content (large files: size, times and inode instead)."""
    into = {} if into is None else into
    pending = [os.fsencode(root)]
    while pending:
        at = pending.pop()
        st = os.lstat(at)
        what = (stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode))
        if stat.S_ISLNK(st.st_mode):
            what += (os.readlink(at),)
        elif stat.S_ISREG(st.st_mode) and st.st_size > 1 << 20:
            what += (st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino)
        elif stat.S_ISREG(st.st_mode):
            with open(at, "rb") as f:
                what += (hashlib.sha1(f.read()).hexdigest(),)
        elif stat.S_ISDIR(st.st_mode) and len(at) < 3000:
            pending += [at + b"/" + name for name in os.listdir(at)]
        into[at] = what
    return into


def differences(before, after):
    changed = [p for p in before if before[p] != after.get(p)] + [p for p in after if p not in before]
    return [("gone: " if p not in after else "new: " if p not in before else "changed: ") + ascii(os.fsdecode(p)) for p in changed[:4]]


def size_of(folder):
    return sum(st.st_size for root, _, names in os.walk(folder) for st in (os.lstat(os.path.join(root, n)) for n in names)
               if stat.S_ISREG(st.st_mode))


# --- system calls -------------------------------------------------------------------------------------------------------------

TEXT = rb'"((?:[^"\\]|\\.)*)"'
PLACE = rb"(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>"


def plain(text):
    return os.fsdecode(text.decode("unicode_escape").encode("latin-1"))


def whole_calls(log):
    """Lines "PID call(...) = result", where those that another thread interrupted are put together again."""
    begun = {}
    for line in log.split(b"\n"):
        pid, _, call = line.partition(b" ")
        call = call.strip()
        if call.endswith(b"<unfinished ...>"):
            begun[pid] = call[:-len(b"<unfinished ...>")]
        elif call.startswith(b"<... "):
            yield begun.pop(pid, b"") + call.partition(b"resumed>")[2]
        elif call:
            yield call


def paths_of(call, cwd):
    """The paths a call names, absolute; the last component of each as it is, what is before it without links."""
    out, folder = [], cwd
    for m in re.finditer(TEXT + b"|" + PLACE, call):
        if m.group(2) is not None:
            folder = plain(m.group(2))
        else:
            p = os.path.join(folder, plain(m.group(1)))
            out.append(os.path.join(os.path.realpath(os.path.dirname(p)), os.path.basename(p)))
            folder = cwd
    return out


def is_write(name, call, cwd):
    """Opening what is there to read and write is fine inside the artefact, whose contents are compared: SQLite does, to lock."""
    if name in ("open", "openat", "openat2"):
        there = re.search(rb"= \d+<((?:[^>\\]|\\.)*)>\s*$", call)
        inside = there and plain(there.group(1)).startswith(cwd + "/")
        return re.search(rb"O_WRONLY|O_CREAT|O_TRUNC" if inside else rb"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", call) is not None
    return name not in ("execve", "execveat", "socket")


def wrong_calls(log, cwd, allowed, files, no_programs_of):
    """Calls that a reader of foreign files has no business to make."""
    wrong, started = [], 0
    for call in whole_calls(log):
        name = call.partition(b"(")[0].decode()
        if name not in CALLS:
            continue
        if name in ("execve", "execveat"):
            started += 1
            if started > 1 and not re.search(rb'"/proc/self/exe"', call) and os.fsencode(no_programs_of) in call:
                wrong.append(call)
            continue
        if name == "socket":
            wrong.append(call)
            continue
        if not is_write(name, call, os.path.realpath(cwd)) or (name in ("mkdir", "mkdirat") and b"EEXIST" in call):
            continue
        made = re.search(rb"= \d+<((?:[^>\\]|\\.)*)>\s*$", call)
        paths = [plain(made.group(1))] if made else paths_of(call, cwd) or [plain(p) for p in re.findall(PLACE, call)]
        for p in paths[1:] if name.startswith("symlink") else paths:  # what a link says is only a text
            p = p.removesuffix(" (deleted)")
            if not any(p == a or p.startswith(a + "/") for a in allowed) and p not in files:
                wrong.append(call)
    return [w.decode("latin-1")[:300] for w in wrong[:3]]


# --- one command --------------------------------------------------------------------------------------------------------------


def steers(text):
    """Control characters in what was printed, C1 and bytes that are no UTF-8 among them."""
    found = {c for c in text.decode("utf-8", "surrogateescape") if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" or "\udc80" <= c <= "\udc9f"}
    return ascii("".join(sorted(found))) if found else ""


class Place:
    """A folder with surroundings, valid things and one artefact at a time."""

    def __init__(self, root, good, tenon, python):
        self.root, self.tenon, self.python = root, tenon, python
        shutil.rmtree(root, ignore_errors=True)
        self.good, self.out, self.home, self.logs = f"{root}/good", f"{root}/out", f"{root}/home", f"{root}/logs"
        os.makedirs(self.logs)
        shutil.copytree(good, self.good, symlinks=True)
        make.surroundings(root, self.good)
        self.around = self.look_around()

    def look_around(self):
        seen = {}
        for name in ("outside", "home", "good"):
            picture(f"{self.root}/{name}", seen)
        seen.update((os.fsencode(f"{self.root}/{name}"), "") for name in os.listdir(self.root) if name not in ("out", "repo", "logs"))
        return seen

    def fresh(self, a):
        shutil.rmtree(f"{self.root}/repo", ignore_errors=True)
        self.folder = make.fresh(self.root, self.good, a.name)
        self.size, self.inside = size_of(self.folder), picture(self.folder)

    def words(self, command, a):
        fill = {"{t}": a.target, "{out}": self.out, "{good}": self.good, "{open}": f"{HERE}/open.py", "{esc}": ESC}
        words = []
        for w in command.words:
            for key, value in fill.items():
                w = w.replace(key, value)
            words.append(w)
        return [self.python, *words[1:]] if words[0] == "python" else [self.tenon, *words]

    def run(self, words):
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        env = {"PATH": "/usr/bin:/bin", "HOME": self.home, "XDG_CACHE_HOME": self.out, "TMPDIR": self.out, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
               "PYTHONPATH": os.environ["PYTHONPATH"], "TENON_LIBRARY": os.environ["TENON_LIBRARY"], "OPENBLAS_NUM_THREADS": "1"}
        tracer = ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-e", "trace=" + ",".join("?" + c for c in CALLS),
                  "-o", f"{self.logs}/calls"]
        with open(f"{self.logs}/stdout", "wb") as out, open(f"{self.logs}/stderr", "wb") as err:
            subprocess.run([f"{os.path.dirname(self.root)}/watch", str(LIMIT_S), f"{self.logs}/report", *tracer, *words], cwd=self.folder, env=env,
                           stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=True)
        texts = []
        for name in ("report", "stdout", "stderr", "calls"):
            with open(f"{self.logs}/{name}", "rb") as f:
                texts.append(f.read())
        how, number, kib = texts[0].split()
        return how.decode(), int(number), int(kib), *texts[1:]


def judge(place, command, a, baseline):
    """What is wrong with this command on this artefact, as lines; and its memory in KiB."""
    wrong, usual = [], a.name.startswith("name_as_usual")
    how, code, kib, out, err, calls = place.run(place.words(command, a))
    if how != "exit":
        wrong.append(f"ended by signal {code}" if how == "signal" else f"ran longer than {LIMIT_S} s")
    else:
        also = {int(n) for pattern, n in a.also if fnmatch.fnmatch(command.name, pattern)}
        fine = command.fine or any(fnmatch.fnmatch(command.name, p) for p in a.ok)
        if code == 0 and not fine:
            wrong.append("exit code 0: it should have been refused")
        elif code and usual and not command.unfit:
            wrong.append(f"exit code {code}, and nothing is wrong with it")
        elif code and code not in ALWAYS | also:
            wrong.append(f"exit code {code}")
        errors = [line for line in err.split(b"\n") if line.startswith(b"error: ")]
        if len(errors) != (code != 0) or b"bug in Tenon" in err:
            wrong.append(f"{len(errors)} lines of error")
    texts = [err] if any(fnmatch.fnmatch(command.name, p) for p in TEXT_OF_MODELS) else [err, out]
    for text in texts:
        if steers(text):
            wrong.append(f"control characters {steers(text)} on standard {'error' if text is err else 'output'}")
    most = baseline + 2 * place.size // 1024 + ROOM_KIB + 1024 * a.room_mib
    if baseline and kib > most:
        wrong.append(f"{kib / 1024:.0f} MiB of memory: {most / 1024:.0f} MiB are allowed for {place.size / (1 << 20):.1f} MiB of files")
    wrong += differences(place.around, place.look_around())
    after = picture(place.folder)
    target = os.path.join(os.path.realpath(place.folder), a.target)
    side_files = [target + end for end in ("-wal", "-shm", "-journal")] if a.kind == "database" else []  # SQLite's own, and it tidies them
    if not command.writes:
        wrong += differences(*({p: what for p, what in seen.items() if os.fsdecode(p) not in side_files} for seen in (place.inside, after)))
    allowed = [place.out, "/dev/null", "/dev/tty", "/proc", f"{place.home}/.cache/tenon"] + [os.path.realpath(place.folder)] * command.writes
    wrong += wrong_calls(calls, place.folder, allowed, side_files + [target] * (a.kind == "database"), place.root if command.starts else "")
    clean = place.inside == after and not wrong
    if wrong:
        words = " ".join(ascii(w) if not w.isprintable() else shlex.quote(w) for w in place.words(command, a))
        wrong = [f"FAILED {a.name}:{command.name}: cd {ascii(place.folder)}; {words}"] + ["    " + w for w in wrong]
        wrong += ["    | " + ascii(line.decode("utf-8", "replace"))[1:300] for line in err.split(b"\n")[-4:] if line]
    return wrong, kib, clean


# --- all of them --------------------------------------------------------------------------------------------------------------

PLACE_OF = {}


def work(job):
    """One artefact by all its commands: (artefact, its commands, baselines) to (lines of failures, passed, failed, memory)."""
    settings, name, commands, baselines = job
    if "place" not in PLACE_OF:
        PLACE_OF["place"] = Place(f"{settings[0]}/place{os.getpid()}", *settings[1:])
    place, a, lines, memory, failed = PLACE_OF["place"], ARTEFACTS[name], [], {}, 0
    dirty = True
    for command in commands:
        if dirty:
            place.fresh(a)
        wrong, kib, clean = judge(place, command, a, baselines.get((a.kind.replace("packed", "data"), command.name), 0))
        memory[a.kind, command.name] = kib
        failed += bool(wrong)
        lines += wrong
        dirty = not clean
        if wrong and place.look_around() != place.around:
            place = PLACE_OF["place"] = Place(place.root, settings[1], *settings[2:])
            dirty = True
    return lines, len(commands) - failed, failed, memory


def missing_verbs(tenon, commands):
    """Verbs of `tenon help` and words of their usage that no command of the table has."""
    listed = subprocess.run([tenon, "help", "--json"], check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    have = {" ".join(c.words[:2]) for c in commands} | {c.words[0] for c in commands}
    want = []
    for verb in map(json.loads, listed):
        want.append(verb["verb"])
        for line in verb["usage"].splitlines():
            word = line.split()[1] if len(line.split()) > 1 else ""
            if verb["verb"] in ("data", "ckpt", "lab", "config", "new", "wire") and re.fullmatch("[a-z]+", word):
                want.append(f"{verb['verb']} {word}")
    return [w for w in dict.fromkeys(want) if w not in have]


def main(work_folder, good, tenon, *only):
    commands = read_commands()
    settings = (os.path.realpath(work_folder), os.path.realpath(good), os.path.realpath(tenon), os.environ["PYTHON"])
    passed = failed = 0
    for verb in missing_verbs(tenon, commands):
        print(f"FAILED no command of commands.txt has `tenon {verb}`")
        failed += 1
    patterns = [p.partition(":") for p in only] or [("*", "", "*")]

    def jobs(names, baselines):
        for name in names:
            chosen = [c for c in commands if ARTEFACTS[name].kind in c.kinds and
                      any(fnmatch.fnmatch(name, p) and fnmatch.fnmatch(c.name, q or "*") for p, _, q in patterns)]
            if chosen:
                yield settings, name, chosen, baselines

    usual = [n for n in ARTEFACTS if n.startswith("name_as_usual")]
    baselines = {}
    with multiprocessing.Pool(min(4, os.cpu_count() or 2)) as pool:
        every = [(settings, n, [c for c in commands if ARTEFACTS[n].kind in c.kinds], {}) for n in usual]
        rest = [n for n in ARTEFACTS if n not in usual]
        for stage in (lambda: every, lambda: jobs(rest, baselines)):
            for lines, p, f, memory in pool.imap(work, stage()):
                passed, failed = passed + p, failed + f
                if lines:
                    print("\n".join(lines), flush=True)
                if stage() is every:
                    baselines.update(memory)
    print(f"{len(rest)} artefacts, {len(commands)} commands")
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
