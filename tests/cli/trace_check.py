"""trace_check.py FILE KEY=VALUE ...: whether a trace is what its readers expect. Prints what is wrong, or a line of what there is.

steps=N: steps traced. tracks=A,B: these threads have spans. has=A,B: spans of these names. title=TEXT: the process's name."""
import json
import sys

trace = json.load(open(sys.argv[1], encoding="utf-8"))
want = dict(x.split("=", 1) for x in sys.argv[2:])
events = trace["traceEvents"]
wrong = []


def check(ok, *text):
    if not ok: wrong.append(" ".join(map(str, text)))


def ns(us):
    return round(us * 1000)


needed = {"X": {"name", "cat", "ts", "dur", "pid", "tid", "args"}, "M": {"name", "pid", "tid", "args"}, "C": {"name", "ts", "pid", "args"}}
tracks, names, spans = {}, {}, []
for e in events:
    check(e.get("ph") in needed and needed[e["ph"]] <= set(e), "fields of", e)
    if e["ph"] == "M": names[e["name"], e["pid"], e["tid"]] = e["args"].get("name")
    if e["ph"] == "C": check(all(isinstance(v, (int, float)) for v in e["args"].values()), "counter", e)
    if e["ph"] != "X": continue
    check(e["ts"] >= 0 and e["dur"] >= 0, "times of", e)
    tracks.setdefault((e["pid"], e["tid"]), []).append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e))

# Spans of a track nest: in the order of the file a span lies in those that are open, or behind them.
for track, rows in tracks.items():
    check(("thread_name", *track) in names, "no name of track", track)
    open_ends, last = [], -1
    for begin, end, e in rows:
        check(begin >= last, "order of", e["name"], "on", track)
        last = begin
        while open_ends and open_ends[-1] <= begin: open_ends.pop()
        check(not open_ends or end <= open_ends[-1], "partly overlapping:", e["name"], "on", track)
        open_ends.append(end)

main = tracks.get((1, 0), [])
steps = [x for x in main if x[2]["name"].startswith("ProfilerStep#")]
ops = [x for x in main if x[2]["cat"] == "cpu_op"]
numbers = [x[2]["args"]["step"] for x in steps]
check(len(steps) == trace["otherData"]["steps"], len(steps), "spans of", trace["otherData"]["steps"], "steps")
check(numbers == list(range(numbers[0], numbers[0] + len(numbers))), "numbers of steps", numbers)
for begin, end, e in steps:
    inside = sum(b - a for a, b, _ in ops if begin <= a and b <= end)
    check(0 < inside <= end - begin, e["name"], "takes", end - begin, "ns, its ops", inside)
check(all({"region", "pass"} <= set(x[2]["args"]) for x in ops), "an op without a region")
check(any(x[2]["args"].get("flop", 0) > 0 for x in ops), "no op has FLOP")
check(trace["otherData"]["dropped"] == 0, "dropped", trace["otherData"]["dropped"])

counters = {e["name"] for e in events if e["ph"] == "C"}
check({"memory of the process", "memory planned", "cores computing"} <= counters, "counters", counters)
busy = [e["args"]["percent"] for e in events if e["ph"] == "C" and e["name"] == "cores computing"]
check(all(0 <= x <= 100.1 for x in busy) and max(busy) > 0, "cores computing", busy)

if "steps" in want: check(len(steps) == int(want["steps"]), len(steps), "steps")
if "title" in want: check(names.get(("process_name", 1, 0)) == want["title"], "title", names.get(("process_name", 1, 0)))
with_spans = {names.get(("thread_name", *t)) for t in tracks}
for name in filter(None, want.get("tracks", "").split(",")): check(name in with_spans, "no spans of", name)
have = {x[2]["name"] for rows in tracks.values() for x in rows}
for name in filter(None, want.get("has", "").split(",")): check(name in have, "no span", name)
# What a worker computes is a piece of an op that the main thread runs at that time.
for begin, end, e in [x for t, rows in tracks.items() for x in rows if x[2]["cat"] == "pieces"]:
    check(any(a <= begin and end <= b for a, b, x in ops if x["name"] == e["name"]), "pieces of no op:", e["name"])
print("\n".join(wrong[:10]) if wrong else f"{len(steps)} steps, {'some' if ops else 'no'} ops")
sys.exit(bool(wrong))
