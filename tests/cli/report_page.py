"""report_page.py JSON PAGE TEXT NAME: every number of the tables, of the advice and of the step in the page and in its Markdown is that of
`tenon report --json`; the page has no script and makes no request; NAME is text in it."""
import html.parser
import json
import math
import re
import sys

lines, page, text, name = sys.argv[1:]
rows = [json.loads(line) for line in open(lines)]
page, text = open(page).read(), open(text).read()


class Tables(html.parser.HTMLParser):
    """Rows of cells by the heading before them, and all list items."""

    def __init__(self):
        super().__init__()
        self.tables, self.items, self.words, self.heading = {}, [], None, ""

    def handle_starttag(self, tag, attrs):
        if tag in ("h2", "td", "th", "li"): self.words = ""
        if tag == "tr": self.tables.setdefault(self.heading, []).append([])

    def handle_endtag(self, tag):
        if tag == "h2": self.heading = self.words
        if tag in ("td", "th"): self.tables[self.heading][-1].append(self.words)
        if tag == "li": self.items.append(self.words)
        if tag in ("h2", "td", "th", "li"): self.words = None

    def handle_data(self, data):
        if self.words is not None: self.words += data


def markdown(lines):
    tables, items, heading = {}, [], ""
    for line in lines:
        if line.startswith("## "): heading = line[3:]
        if line.startswith("- "): items.append(line[2:])
        if line.startswith("| ") and not line.startswith("| ---"):
            tables.setdefault(heading, []).append([x.strip().replace("\\|", "|") for x in re.split(r"(?<!\\)\|", line)[1:-1]])
    return tables, items


def group(which): return [row for row in rows if row.get("group") == which]
def digits(x): return ("%.0f" if 1000 <= abs(x) < 1e12 else "%.4g") % x
def number(x): return digits(x) if x and x > 0 and math.isfinite(x) else ""
def known(x): return "" if x is None else digits(x)
def percent(x): return "%.1f %%" % (100 * x) if x and x > 0 and math.isfinite(x) else ""
def over(x, y): return x / y if x and y else None


def work(row, with_bytes):
    flops, ms = row["flops"], row["value"]
    rates = [over(flops, ms)] + ([over(row["bytes"], ms)] if with_bytes else [])
    return [number(row["calls"]), number(ms), number(row["spread"]), percent(row["share"]), number(flops and 1e-9 * flops),
            number(1e-6 * row["bytes"]), *[number(x and x * 1e-6) for x in rates], row["bound"], percent(over(row["bound_ms"], ms))]


def figures(which): return [[row["name"], number(row["value"]), row["unit"]] for row in group(which)]


expected = {
    "Components of a step": [[row["name"], row["pass"], *work(row, False)] for row in group("component")],
    "Ops": [[row["folder"] or row["name"], row["region"], row["pass"], *work(row, True)] for row in group("op")],
    "Where the run's time went": [[row["label"], known(row["value"]), percent(row["share"]), known(1e3 * row["value"] / row["steps"])]
                                  for row in group("run") if row["value"] is not None],
    "Utilisation": [[row["name"], "this report", number(row["value"]), "", "", row["unit"]] for row in group("use")] +
                   [[row["name"], "the run", known(row["value"]), known(row["least"]), known(row["most"]), row["unit"]]
                    for row in group("recorded")],
    "Memory": figures("memory"),
    "Ceilings of this machine": figures("ceiling"),
}
shown = Tables()
shown.feed(page)
for kind, (tables, items) in ("page", (shown.tables, shown.items)), ("text", markdown(text.split("\n"))):
    for heading, want in expected.items():
        has = tables.get(heading, [[]])[1:]
        good = has == want and (bool(want) or heading == "Where the run's time went")
        print(f"{kind}, {heading}:", good, *([] if good else [next(((a, b) for a, b in zip(has, want) if a != b), (len(has), len(want)))]))
    step = next(row for row in rows if row.get("name") == "step")
    said = [f"A step takes {digits(step['step_ms'])} ms"] + [
        "%s: %.2f times as fast (%.2f to %.2f" % tuple(row[k] for k in ("set", "value", "low", "high")) for row in group("advice")]
    if not step["replayed"]: said.append("of %s ms: %.1f %%" % (digits(step["timed_ms"]), 100 * abs(step["timed_ms"] / step["step_ms"] - 1)))
    print(f"{kind}, sentences:", all(any(x in item for item in items) for x in said))
parts = group("component")
print("parts are the step:", abs(sum(row["value"] for row in parts) - step["parts_ms"]) < 1e-9 * step["parts_ms"],
      abs(sum(row["share"] for row in parts) - 1) < 1e-9, abs(sum(row["share"] for row in group("op")) -
      sum(row["share"] for row in parts if row["pass"])) < 1e-9)
print("pictures", page.count("<svg"), "MB", math.ceil(len(page) / 1e6))
print("scripts", "<script" in page, "requests", "http" in page.replace("http://www.w3.org/2000/svg", ""))
print("name", (name not in page or "<" not in name) and html.escape(name) in page and text.startswith("# " + name.replace("<", "\\<") + "\n"))
