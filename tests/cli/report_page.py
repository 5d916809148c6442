"""report_page.py JSON PAGE TEXT NAME: the page has the numbers of `tenon report --json`, no script and no request; NAME is text in it."""
import html
import json
import re
import sys

lines, page, text, name = sys.argv[1:]
rows = [json.loads(line) for line in open(lines)]
page, text = open(page).read(), open(text).read()
parts = [row for row in rows if row.get("group") == "component"]
ops = [row for row in rows if row.get("group") == "op"]
cells = re.findall(r"<tr><td>([^<]*)</td><td>(forward|backward|)</td><td>([0-9.e+-]*)</td>", page)
shown = {(part, direction): value for part, direction, value in cells}
written = [shown[(row["name"], row["pass"])] == ("%.4g" % row["value"] if row["value"] > 0 else "") for row in parts]
print("components", all(written) and len(parts) > 5)
print("shares", abs(sum(row["share"] for row in parts) - 1) < 1e-9)
print("ops", len(ops) > 10 and all(f"<td>{html.escape(row['region'])}</td>" in page for row in ops))
print("pictures", page.count("<svg"))
print("scripts", "<script" in page, "requests", "http" in page.replace("http://www.w3.org/2000/svg", ""))
print("name", name not in page and html.escape(name) in page and text.startswith(f"# {name}\n"))
