"""report_recorded.py JSON PAGE: the page has the numbers, sentences and settings of `tenon report RUN --recorded --json`, and no script."""
import html
import json
import sys

rows = [json.loads(line) for line in open(sys.argv[1])]
page = open(sys.argv[2]).read()


def of(group):
    return [row for row in rows if row["group"] == group]


def shown(text):
    return html.escape(text, quote=False).replace('"', "&quot;") in page


def cell(x):
    return ("<td>%.0f</td>" if abs(x) >= 1000 else "<td>%.4g</td>") % x in page


numbers = len(of("recorded")) > 6 and all(cell(row["value"]) for row in of("recorded"))
logged = len(of("logged")) > 3 and all(cell(row[k]) for row in of("logged") for k in ("forward", "backward") if row[k] is not None)
missing = len(of("missing")) > 0 and all(shown(row["name"]) and shown(row["why"]) for row in of("missing"))
settings = len(of("setting")) > 5 and all(f"<td>{html.escape(row['value'], quote=False)}</td>" in page for row in of("setting"))
print("numbers", numbers and logged, "missing", missing, "settings", settings)
print("pictures", page.count("<svg"), "scripts", page.count("<script"))
