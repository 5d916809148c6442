"""Looks at what `tenon eval --flows` wrote for six samples of lattice.c: f.svg is XML; f.html is one file without references whose tags match,
and its numbers are those of f.csv. Writes its script to page.js."""
import base64
import csv
import html.parser
import json
import re
import xml.dom.minidom

xml.dom.minidom.parse("f.svg")
page = open("f.html").read()


class Tags(html.parser.HTMLParser):
    open = []

    def handle_starttag(self, tag, attrs):
        assert not any(k in ("src", "href") for k, _ in attrs)
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


Tags().feed(page)
assert not Tags.open and "http" not in page and len(page) < 3000000
data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
rows = {(int(r["sample"]), int(r["slot"]), int(r["step"])): r for r in csv.DictReader(open("f.csv"))}
flows = 0
for k, s in enumerate(data["samples"]):
    b, i = base64.b64decode(s["paths"]), 0
    assert s["label"] == (200 + k) % 10 and len(base64.b64decode(s["target"])) == 30
    while i < len(b):
        slot, first, n = (int.from_bytes(b[i + p:i + q], "little") for p, q in ((0, 3), (3, 5), (5, 7)))
        landed, upper = b[i + 7] % 4, b[i + 7] // 4
        assert upper == slot % 2
        for t in range(first, first + n):
            x, y, z, e = (q / 127 - 1 for q in b[i + 8 + 4 * (t - first):i + 12 + 4 * (t - first)])
            r = rows.pop((k, slot, t))
            want = [float(r[key]) for key in ("x", "y", "z", "energy")]
            have = [(x + 1) / 2 * 5, (y + 1) / 2 * 4, (z + 1) / 2 * 8, e * data["scale"]]
            assert all(abs(p - q) < 0.02 for p, q in zip(want, have)), (want, have)
            assert r["status"] == ("active" if t < first + n - 1 else ("active", "exited", "projected")[landed])
        i, flows = i + 8 + 4 * n, flows + 1
assert not rows
print(flows, "flows")
open("page.js", "w").write(page[page.rindex("<script>") + 8:page.rindex("</script>")])
