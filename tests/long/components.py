"""components.py < `tenon report --json`: "ok" with three figures, or what does not hold.

Components add up to the step within 4 % (and what is measured with timers is no other step); "other" is at most 3 %; no row, and no component,
takes less than the time that its ceiling allows, but for 5 %."""
import json
import sys

STEP, TIMED = "value", "timed_ms"  # of the line "step": as training runs it, with timers
GROUP, TIME, LEAST = "group", "value", "bound_ms"  # of components and ops
APART, OTHER, ABOVE = 0.04, 0.03, 1.05

lines = [json.loads(x) for x in sys.stdin]
step = next(x for x in lines if x.get("name") == "step")
parts = [x for x in lines if x.get(GROUP) == "component"]
ops = [x for x in lines if x.get(GROUP) == "op"]
assert len(parts) > 5 and len(ops) > 5, "no components"
total = sum(x[TIME] for x in parts if x["name"] != "other")
other = sum(x[TIME] for x in parts if x["name"] == "other")
ratio = total / step[STEP]
# Rows as short as the clock's own error say nothing by themselves; the components that they are in do.
rows = parts + [x for x in ops if x[TIME] > 0.002 * step[STEP]]
most = max((x for x in rows if x[TIME] > 0), key=lambda x: x[LEAST] / x[TIME])
reach = most[LEAST] / most[TIME]
wrong = []
if abs(ratio - 1) > APART: wrong.append(f"components are {100 * ratio:.1f} % of the step ({step[TIMED] / step[STEP]:.3f} with timers)")
if other > OTHER * step[STEP]: wrong.append(f"other is {100 * other / step[STEP]:.1f} %")
if reach > ABOVE: wrong.append(f"{most['name']} {most.get('region', '')} {most['pass']} reaches {100 * reach:.0f} % of its ceiling")
known = [x for x in ops if x["component"].endswith("solve")]
if any(x["flops"] is None for x in known): wrong.append("the solver's FLOPs are not known")
print("; ".join(wrong) if wrong else f"ok, {100 * ratio:.1f} % of the step, other {100 * other / step[STEP]:.1f} %, at most {100 * reach:.0f} % of a ceiling")
