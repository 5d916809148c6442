#!/usr/bin/env bash
# The page of `tenon report` in a real browser: drawn whole, in light and dark, printed on A4 without a cut; no error on its console, no
# request, at most 1 MB. Ends with "N passed, N failed". Half a minute.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cat "$here"/../../docs/*.md >"$work/text.txt" && cd "$work" || exit 2
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}
browse() { timeout 60 chromium --headless --no-sandbox --user-data-dir="$work/profile" --disable-gpu --hide-scrollbars --log-level=0 --enable-logging=stderr "$@" 2>browser.log; }

"$tenon" train ten_tiny data=text.txt layers=4 train.context=64 train.steps=30 train.eval_every=10 train.eval_batches=2 run='r<script>' >log 2>&1 || tail -3 log
"$tenon" report 'r<script>' --seconds=0.5 --html=one.html --md=one.md --json >one.jsonl 2>/dev/null
"$tenon" report 'r<script>' --recorded --html=recorded.html >/dev/null 2>&1
"$tenon" report ten_tiny,layers=1 ten_tiny,layers=2 vocab=64 train.context=64 --seconds=0.2 --html=two.html >/dev/null 2>&1

whole() { # PAGE: nothing was dropped as malformed, and its size
    [ "$(stat -c %s "$1")" -le 1000000 ] || { echo "$1 has $(stat -c %s "$1") bytes"; return 1; }
    browse --virtual-time-budget=2000 --dump-dom "file://$work/$1" >dom.html || { tail -3 browser.log; return 1; }
    python3 - "$1" <<'END'
import re, sys
page, dom = open(sys.argv[1]).read(), open("dom.html").read()
assert "</html>" in dom and not re.search(r"(src|href)=|<script|url\(|@import", page)
for tag in "svg", "path", "circle", "rect", "table", "tr", "td", "li", "text":
    count = [len(re.findall(f"<{tag}[ >]", x)) for x in (dom, page)]
    assert count[0] == count[1], (tag, count)
END
}
quiet() { # PAGE: requests go to a proxy that does not exist and would fail on the console
    browse --proxy-server=127.0.0.1:9 --log-net-log="$work/net.json" --virtual-time-budget=2000 --dump-dom "file://$work/$1" >/dev/null || return 1
    ! grep -F CONSOLE browser.log && ! grep -oE '"url":"(https?|wss?|ftp)://[^"]*"' net.json | grep -vE '(google|gvt1|chromium)'
}
printed() { # PAGE: all of its cells within the 182 mm that A4 has between margins (the command prints on letter paper, whatever the page asks for)
    browse --no-pdf-header-footer --print-to-pdf="$work/page.pdf" "file://$work/$1" || return 1
    pdftotext -bbox page.pdf words.html && python3 - "$1" <<'END'
import html, re, sys
page, words = open(sys.argv[1]).read(), open("words.html").read()
boxes = re.findall(r'xMin="([0-9.]+)" yMin="[0-9.]+" xMax="([0-9.]+)" yMax="[0-9.]+">([^<]*)<', words)
assert len(boxes) > 100 and max(float(b[1]) for b in boxes) - min(float(b[0]) for b in boxes) <= 182 * 72 / 25.4, len(boxes)
said = {html.unescape(b[2]) for b in boxes}
missing = {w for cell in re.findall(r"<td[^>]*>([^<]*)</td>", page) for w in html.unescape(cell).split()} - said
assert not missing, missing
END
}
dark() { # PAGE: a dark background, and light text on it
    browse --blink-settings=preferredColorScheme="$2" --window-size=900,1200 --screenshot="$work/shot.png" "file://$work/$1" || return 1
    python3 - "$2" <<'END'
import struct, sys, zlib
data, at, pixels = open("shot.png", "rb").read(), 8, b""
while at < len(data):
    n, kind = struct.unpack(">I4s", data[at:at + 8])
    if kind == b"IHDR": width, height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
    if kind == b"IDAT": pixels += data[at + 8:at + 8 + n]
    at += 12 + n
raw, step = zlib.decompress(pixels), 4 if colour == 6 else 3
assert depth == 8 and colour in (2, 6)
before, shades = bytearray(width * step), [0] * 256
for y in range(height):
    kind, line = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:(y + 1) * (width * step + 1)])
    for i in range(len(line)):
        a, b, c = line[i - step] if i >= step else 0, before[i], before[i - step] if i >= step else 0
        p = a + b - c
        near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        line[i] = (line[i] + (0, a, b, (a + b) // 2, near)[kind]) & 255
    for i in range(0, len(line), step): shades[sum(line[i:i + 3]) // 3] += 1
    before = line
most = max(range(256), key=shades.__getitem__)
text = sum(shades[k] for k in range(256) if abs(k - most) > 150) / (width * height)
assert (most < 40 if sys.argv[1] == "0" else most > 215) and text > 0.005, (most, text)
END
}
for page in one.html two.html; do
    check "$page is whole" whole $page
    check "$page asks for nothing and complains of nothing" quiet $page
    check "$page on A4" printed $page
    check "$page in dark" dark $page 0
    check "$page in light" dark $page 1
done
check 'recorded.html is whole' whole recorded.html
check 'recorded.html asks for nothing and complains of nothing' quiet recorded.html
check 'recorded.html on A4' printed recorded.html
check 'the page has the numbers of --json' [ "$(python3 "$here/../cli/report_page.py" one.jsonl one.html one.md 'r<script>' | tee read | grep -c ': True')" = 15 ]
echo "$passed passed, $failed failed"
[ $failed = 0 ]
