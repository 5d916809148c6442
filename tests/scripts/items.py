"""bench/items.jsonl: every line is an object with all fields, a known verdict, an item of its own, a command and commits that exist; no item of
the reports is missing. Commits are looked up where ROOT is a git repository with its whole history.
Usage: items.py ROOT [UNIT]. UNIT: the unit test program, whose --list says which tests there are. Prints what is wrong; exit code 1 then."""
import json, os, re, shlex, subprocess, sys

root, unit = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
path = "bench/items.jsonl"
fields = ["item", "title", "claim", "check", "command", "figure", "verdict", "machine", "commit", "note"]
may_be_null = {"figure", "machine", "commit"}
verdicts = {"met", "exceeded", "missed", "open", "impossible"}
# Every item of the reports. The counts are there so that a name cannot be lost unnoticed: an item that is added changes both.
required = {
    "tep": (13, "1 1a 2 3 4 5 5a 5b 6 7 8 9 10"),
    "ten": (33, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 25a 26 27 28 29 30 31 32"),
    "wire": (23, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23"),
    "flow": (19, "1 2 3 4 5 6 6.1 7 8 9 10 11 12a 12b 12c 13 14 15 16"),
}
bad, seen, cited = [], {}, []


def read(name):
    with open(os.path.join(root, name), encoding="utf-8") as f: return f.read()


verbs = set(re.findall(r"^TN_(?:VERB|GROUP)\((\w+)", read("src/cli/verbs.def"), re.M))
presets = {n for d, _, files in os.walk(os.path.join(root, "src/models")) for f in files if f.endswith(".c")
           for n in re.findall(r'^ *\{ "(\w+)", *"', read(os.path.relpath(os.path.join(d, f), root)), re.M)}
presets |= set(re.findall(r"^TN_MODEL\((\w+)", read("src/models/models.def"), re.M))
tests = subprocess.run([unit, "--list"], capture_output=True, text=True, check=True).stdout.splitlines() if unit else None


def git(*words, ask=""):
    """What git says in ROOT; nothing where there is none."""
    try:
        return subprocess.run(["git", "-C", root, *words], input=ask, capture_output=True, text=True).stdout
    except OSError:
        return ""


def wrong(command):
    """What of one command is not there, or None."""
    words = shlex.split(command)
    while words and re.match(r"^[A-Z_]+=", words[0]): words = words[1:]
    if not words: return "no command"
    if words[0] in ("python3", "bash"): words = words[1:]
    name = words[0] if words else ""
    if name == "tenon":
        if len(words) < 2 or words[1] not in verbs: return f"no verb {' '.join(words[1:2])}"
        if words[1] in ("bench", "ablate", "check") and len(words) > 2 and words[2] not in presets | {"gemm", "ops", "gru", "relax", "decode", "inputs"}:
            return f"no model or preset {words[2]}"
        return None
    if name == "build/unit":
        missing = [w for w in words[1:] if tests is not None and not any(w in t for t in tests)]
        return f"no test whose name contains '{missing[0]}'" if missing else None if words[1:] else "which tests?"
    if not re.match(r"^(tests|bench|scripts|examples)/", name): return f"{name}: neither tenon, build/unit nor a script"
    if not os.path.exists(os.path.join(root, name)): return f"{name} is not there"
    if name == "scripts/run-tests":
        steps = [w for w in words[1:] if w != "--long"]
        gone = [s for s in steps if not any(os.path.exists(os.path.join(root, p)) for p in (f"tests/long/{s}.sh", f"tests/{s}/run.sh", f"scripts/check-{s}"))]
        return f"no step {gone[0]}" if gone else None
    parts = words[1] if len(words) > 1 else ""
    if name.startswith("bench/") and name.endswith(".py") and parts and not re.search(rf"^def {re.escape(parts)}\(", read(name), re.M):
        return f"{name} has no part {parts}"
    return None


for number, line in enumerate(read(path).splitlines(), 1):
    where = f"{path}:{number}:"
    try:
        row = json.loads(line)
    except ValueError as error:
        bad.append(f"{where} {error}")
        continue
    if not isinstance(row, dict) or list(row) != fields:
        bad.append(f"{where} fields are {', '.join(row) if isinstance(row, dict) else 'none'}; expected, in this order: {', '.join(fields)}")
        continue
    where += f" {row['item']}:"
    for f in fields:
        if not (isinstance(row[f], str) and (row[f] or f == "note")) and not (row[f] is None and f in may_be_null):
            bad.append(f"{where} {f} is {json.dumps(row[f])}, text expected")
            row[f] = "x"
    if not re.match(r"^[a-z]+/[0-9][0-9.a-z]*$", row["item"]): bad.append(f"{where} an item is FAMILY/NUMBER")
    if row["item"] in seen: bad.append(f"{where} also in line {seen[row['item']]}")
    seen.setdefault(row["item"], number)
    if row["verdict"] not in verdicts: bad.append(f"{where} verdict '{row['verdict']}' is none of: {', '.join(sorted(verdicts))}")
    elif row["verdict"] != "open" and row["figure"] is None: bad.append(f"{where} '{row['verdict']}' without a figure")
    elif row["verdict"] == "open" and not row["note"]: bad.append(f"{where} open: the note says what was not measured")
    elif row["verdict"] == "impossible" and not re.search(r"\d[^=]* = \d", row["note"]): bad.append(f"{where} impossible: the note has the arithmetic (A x B = C)")
    if (row["machine"] is None or row["commit"] is None) != (row["figure"] is None): bad.append(f"{where} a figure has its machine and commit, and only a figure has them")
    if row["commit"] and not re.match(r"^[0-9a-f]{7,40}$", row["commit"]): bad.append(f"{where} commit '{row['commit']}' is none")
    cited += [(where, c) for c in {row["commit"] or "", *re.findall(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,40}\b", f"{row['figure']} {row['note']}")}
              if re.match(r"^[0-9a-f]{7,40}$", c)]
    for command in row["command"].split("; "):
        what = wrong(command)
        if what: bad.append(f"{where} command `{command}`: {what}")

for family, (count, names) in required.items():
    names = [f"{family}/{n}" for n in names.split()]
    if len(names) != count: bad.append(f"items.py: {len(names)} names of {family}, {count} items")
    bad += [f"{path}: {n} is missing" for n in names if n not in seen]
known = {f"{family}/{n}" for family, (_, names) in required.items() for n in names.split()}
bad += [f"{path}:{line}: {n}: add it to `required` in tests/scripts/items.py" for n, line in seen.items() if n not in known]
if os.path.exists(os.path.join(root, ".git")) and git("rev-parse", "--is-shallow-repository").strip() == "false":
    found = git("cat-file", "--batch-check", ask="".join(c + "^{commit}\n" for _, c in cited)).splitlines()
    bad += [f"{where} commit {c} is not in this repository" for (where, c), line in zip(cited, found) if " commit " not in line]
for line in bad: print(line)
sys.exit(bool(bad))
