"""README: short enough, its figures stand on the pages they link to, its commands are run by tests/docs or say how long they take.
Usage: readme.py ROOT. Prints what is wrong; exit code 1 then."""
import os, re, sys

root = sys.argv[1]
text = open(os.path.join(root, "README.md"), encoding="utf-8").read()
bad = []
number = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")

if text.count("\n") > 130: bad.append(f"{text.count(chr(10))} lines, at most 130")

# Each number of a figure's result is a number of its page, rounded to as many digits.
rows = re.findall(r"^\| (.+?) \| (.+?) \| \[[^]]*\]\(([^)#]+)(#[^)]*)?\) \|$", text, re.M)
if not 1 <= len(rows) <= 8: bad.append(f"{len(rows)} figures with a page, from 1 to 8 expected")
for what, result, page, anchor in rows:
    path = os.path.join(root, page)
    if not os.path.exists(path):
        bad.append(f"{page}: no such page")
        continue
    source = open(path, encoding="utf-8").read()
    there = number.findall(source.replace(",", ""))
    if anchor:
        titles = [re.sub(r"[^a-z0-9 -]", "", t.lower()).replace(" ", "-") for t in re.findall(r"^#+ (.*)$", source, re.M)]
        if anchor[1:] not in titles: bad.append(f"{page} has no heading {anchor}")
    for n in number.findall(result.replace(",", "").replace("95 %", "")):
        if n in ("16", "32", "fp32"): continue  # of bf16, fp32
        digits = len(n.split(".")[1]) if "." in n and "e" not in n else 0
        if not any(t == n or ("e" not in n and "e" not in t and round(float(t), digits) == float(n)) for t in there):
            bad.append(f"{what}: {n} is not on {page}")

# Links inside the repository lead somewhere.
for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
    if not os.path.exists(os.path.join(root, link)): bad.append(f"link to {link}: not there")

# Commands outside sh blocks: how long they take.
outside = re.sub(r"```sh\n.*?```", "", text, flags=re.S)
for line in re.findall(r"^    ((?:make|pip|tenon) .*)$", outside, re.M):
    if not re.search(r"# .*(minute|second)", line): bad.append(f"no duration: {line}")
for row in re.findall(r"^\| `?\w.*\|$", outside, re.M):
    for command in re.findall(r"`(tenon [a-z]+ [^`]*)`([^|`]*)", row):
        if not re.search(r"minute|second", command[1]): bad.append(f"no duration: {command[0]}")

for line in bad: print("README.md:", line)
sys.exit(bool(bad))
