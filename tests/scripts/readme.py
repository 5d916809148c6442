"""README: short enough, its figures stand on the pages they link to, its commands are run by tests/docs or say how long they take. All pages:
links inside the repository lead to a file, and to a heading of it.
Usage: readme.py ROOT. Prints what is wrong; exit code 1 then."""
import os, re, sys

root = sys.argv[1]
text = open(os.path.join(root, "README.md"), encoding="utf-8").read()
bad = []
number = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")

if text.count("\n") > 130: bad.append(f"{text.count(chr(10))} lines, at most 130")



def source_of(path):
    with open(path, encoding="utf-8") as f: return f.read()


def headings(page):
    """As links name them. Equal ones are counted: a, a-1, a-2."""
    names = []
    for title in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", source_of(page), flags=re.M | re.S), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        names.append(re.sub(r"[^\w -]", "", title.lower(), flags=re.A).replace(" ", "-"))
    return {n if k == 0 else f"{n}-{k}" for i, n in enumerate(names) for k in [names[:i].count(n)]}


# Each number of a figure's result is a number of its page, rounded to as many digits.
rows = re.findall(r"^\| (.+?) \| (.+?) \| \[[^]]*\]\(([^)#]+)(#[^)]*)?\) \|$", text, re.M)
if not 1 <= len(rows) <= 8: bad.append(f"{len(rows)} figures with a page, from 1 to 8 expected")
for what, result, page, anchor in rows:
    path = os.path.join(root, page)
    if not os.path.exists(path):
        bad.append(f"{page}: no such page")
        continue
    there = number.findall(source_of(path).replace(",", ""))
    for n in number.findall(result.replace(",", "").replace("95 %", "")):
        if n in ("16", "32", "fp32"): continue  # of bf16, fp32
        digits = len(n.split(".")[1]) if "." in n and "e" not in n else 0
        if not any(t == n or ("e" not in n and "e" not in t and round(float(t), digits) == float(n)) for t in there):
            bad.append(f"{what}: {n} is not on {page}")

# Links inside the repository lead somewhere. Code is no link.
pages = []
for folder, folders, files in os.walk(root):
    folders[:] = [f for f in folders if not re.match(r"\.|build|(carry|data|runs|shared|sysroot)$", f)]
    pages += [os.path.join(folder, f) for f in files if f.endswith(".md")]
lost = []
for page in sorted(pages):
    for link in re.findall(r"\]\(([^):]+)\)", re.sub(r"^```.*?^```|`[^`]*`", "", source_of(page), flags=re.M | re.S)):
        name, _, anchor = link.partition("#")
        path = os.path.join(os.path.dirname(page), name) if name else page
        if not os.path.exists(path): lost.append(f"{os.path.relpath(page, root)}: link to {link}: not there")
        elif anchor and anchor not in headings(path): lost.append(f"{os.path.relpath(page, root)}: no heading {link}")

# Commands outside sh blocks: how long they take.
outside = re.sub(r"```sh\n.*?```", "", text, flags=re.S)
for line in re.findall(r"^    ((?:make|pip|tenon) .*)$", outside, re.M):
    if not re.search(r"# .*(minute|second)", line): bad.append(f"no duration: {line}")
for row in re.findall(r"^\| `?\w.*\|$", outside, re.M):
    for command in re.findall(r"`(tenon [a-z]+ [^`]*)`([^|`]*)", row):
        if not re.search(r"minute|second", command[1]): bad.append(f"no duration: {command[0]}")

for line in [f"README.md: {b}" for b in bad] + lost: print(line)
sys.exit(bool(bad or lost))
