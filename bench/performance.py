#!/usr/bin/env python3
"""docs/performance.md from bench/items.jsonl.

    bench/performance.py > docs/performance.md

tests/scripts/run.sh makes the page anew and compares; tests/scripts/items.py checks the lines themselves.
"""
import json, os, re, sys, textwrap

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
width = 130
verdicts = ["met", "exceeded", "missed", "open", "impossible"]
families = {  # name: title, and what its report was about
    "tep": ("Equilibrium networks", "The report profiled two trainings of an equilibrium network (40.2 s) and proposed six changes. `FILE` and `FOLDER` are the 8x8 "
            "digits (`tenon data get digits`). [Equilibrium networks](equilibrium.md), [figures](../bench/results/equilibrium.md)."),
    "ten": ("Eigenstate recurrences", "Two reports on a network whose training of 128 M parameters took 92 hours, because Python looped over tokens. `d768 L12 K64` is "
            "width 768, 12 layers, 64 eigenstates; `64 x 1024` is 64 sequences of 1,024 tokens; TEN-B is the preset `ten_b`. [Variants](variants.md), "
            "[figures](../bench/results/h200.md)."),
    "wire": ("Messages to frozen language models", "The report wanted a training of 24 hours on four GPUs to take 4 to 6. The preset `wire_seed` has the shape of its "
             "workload. [The wire](wire.md), [figures](../bench/results/h200.md#the-wire)."),
    "flow": ("Energy-flow lattice", "The report listed twelve changes for a lattice that used 8 % of its GPU. [The lattice](flow.md), "
             "[figures](../bench/results/h200.md#the-energy-flow-lattice)."),
}
introduction = """\
Tenon began from five reports on four first prototypes. Each listed optimisations and promised gains that nobody had measured. Here is every item of the five: what was promised, what was
measured, and a verdict. After each table follows, item by item, when we call it met, the commands that show the figure, machine and commit.

| verdict | meaning |
| --- | --- |
| met | every part of the check holds |
| exceeded | it does, and the figure is better than the best that was claimed |
| missed | it was measured, and a part of the check does not hold |
| open | a part of the check has not been measured; the note says what is missing |
| impossible | it cannot be reached; the note has the arithmetic |

A commit is the one measured, or, where only a date was kept, the one that recorded the figure. 28e5a63b stands for several commits of 18 November
that were joined. Figures with a page in [bench/results](../bench/results) are in its words; the others stand here alone, with their interval in brackets. Machines were
often shared, so trust ratios and counts more than single times.

This page is made from [bench/items.jsonl](../bench/items.jsonl), one line for each item: `bench/performance.py > docs/performance.md`. To add or correct a figure, see
[CONTRIBUTING.md](../CONTRIBUTING.md#numbers)."""


def wrap(paragraph, indent=""):
    """Lines of at most `width`. Commands stay on one line if they fit, and no line begins with what Markdown takes for a list or a heading."""
    glue = "\x01"
    joined = re.sub(r"`[^`]{1,100}`", lambda m: m[0].replace(" ", glue), " ".join(paragraph.split()))
    joined = re.sub(r" (?=([-+#>]|\d+[.)]) )", glue, joined)
    return textwrap.fill(joined, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False).replace(glue, " ")


def prose(blocks):
    """Paragraphs, wrapped; tables stay as they are."""
    return "\n\n".join(b if b.startswith("|") else wrap(b) for b in blocks.split("\n\n"))


def text(value):
    """As Markdown shows it: no tags, no emphasis by chance; code stays code."""
    parts = re.split(r"(`[^`]*`)", value)
    return "".join(p if i % 2 else p.replace("*", "\\*").replace("<", "&lt;").replace(">", "&gt;") for i, p in enumerate(parts))


def cell(value):
    return text(value).replace("|", "\\|")


def details(row):
    lines = [f"- **{row['item']}** {text(row['title'])}. Check: {text(row['check'])}."]
    if row["machine"]: lines.append(f"Measured: {text(row['machine'])}, {row['commit']}.")
    lines.append("Commands:" if "; " in row["command"] else "Command:")
    lines.append("; ".join(f"`{c}`" for c in row["command"].split("; ")) + ".")
    if row["note"]: lines.append("Note: " + text(row["note"].rstrip(".")) + ".")
    return wrap(" ".join(lines), "  ")


def family(name, rows):
    title, about = families[name]
    yield f"## {title} (`{name}`)\n\n{prose(about)}\n"
    yield "| item | what | claim | measured | verdict |\n| --- | --- | --- | --- | --- |"
    for r in rows: yield f"| {r['item']} | {cell(r['title'])} | {cell(r['claim'])} | {cell(r['figure'] or '-')} | **{r['verdict']}** |"
    yield f"\n### How it was measured: {name}\n"
    for r in rows: yield details(r)
    yield ""


def summary(items):
    yield "| family | items | " + " | ".join(verdicts) + " |\n|" + " --- |" * (len(verdicts) + 2)
    for name, rows in [*items.items(), ("all", [r for rows in items.values() for r in rows])]:
        label = f"[{families[name][0]}](#{re.sub(r'[^a-z0-9 -]', '', families[name][0].lower()).replace(' ', '-')}-{name})" if name in families else "all"
        yield f"| {label} | {len(rows)} | " + " | ".join(str(sum(r["verdict"] == v for r in rows)) for v in verdicts) + " |"
    yield ""


items = {name: [] for name in families}
for line in open(os.path.join(root, "bench", "items.jsonl"), encoding="utf-8"):
    row = json.loads(line)
    name = row["item"].split("/")[0]
    if name not in items: sys.exit(f"bench/performance.py: {row['item']}: no family {name}; add it to `families`")
    if row["verdict"] not in verdicts: sys.exit(f"bench/performance.py: {row['item']}: verdict '{row['verdict']}' is none of: {', '.join(verdicts)}")
    items[name].append(row)
page = ["<!-- Made by bench/performance.py from bench/items.jsonl: change these, not this page. -->", "# What was promised and what was measured\n", prose(introduction), "", *summary(items)]
for name, rows in items.items(): page += family(name, rows)
print("\n".join(page).rstrip())
