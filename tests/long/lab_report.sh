#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# A study as others see it: its journal read by the real Optuna, its page drawn by a real browser, its table and lines by python3; ls, best,
# show, diff and compare say the same of it. About half a minute.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}
python=python3
/usr/bin/python3 -c 'import optuna' 2>/dev/null && python=/usr/bin/python3

cat >s.yaml <<'END'
study: s
base: xor_tep
set: { task.size: 256, train.epochs: 3, train.batch: 16 }
search: { dim: log int 4..24, train.lr: log 1e-4..1e-1, solver: [picard, anderson] }
sides: { ep: { set: { grad: ep_centred }, search: { beta: log 0.01..0.5 } }, bp: { set: { grad: bptt } } }
objectives: [ accuracy max 0, seconds min 100, parameters min 1e6 ]
sampler: { name: tpe, seed: 7 }
trials: 24
END
"$tenon" lab run s.yaml --workers=2 >run.out 2>run.err || cat run.err
for format in csv jsonl optuna; do check "export to $format" "$tenon" lab export s.db --format=$format --out=s.$format 2>/dev/null; done

read_back() {
    "$python" - "$tenon" <<'END'
import csv, json, subprocess, sys, warnings
import optuna
warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
try:
    from optuna.storages.journal import JournalFileBackend as Journal
except ImportError:
    from optuna.storages import JournalFileStorage as Journal
lines = [json.loads(x) for x in open("s.jsonl")]
rows = list(csv.DictReader(open("s.csv")))
assert len(lines) == len(rows) == 48, (len(lines), len(rows))
storage = optuna.storages.JournalStorage(Journal("s.optuna"))
assert sorted(x.study_name for x in optuna.get_all_study_summaries(storage)) == ["s/bp", "s/ep"]
def evaluations(side, number):
    said = subprocess.run([sys.argv[1], "lab", "show", "s.db", f"{side}/{number}", "--json"], check=True, capture_output=True, text=True).stdout
    return {o["step"]: o["accuracy"] for o in map(json.loads, said.splitlines()) if o["name"] == "evaluation"}
for side in "ep", "bp":
    study = optuna.load_study(study_name=f"s/{side}", storage=storage)
    assert [d.name for d in study.directions] == ["MAXIMIZE", "MINIMIZE", "MINIMIZE"]
    names = ["accuracy", "seconds", "parameters"]
    assert study._storage.get_study_system_attrs(study._study_id)["study:metric_names"] == names
    assert getattr(study, "metric_names", names) == names  # Optuna 3.2 and later
    mine = [x for x in lines if x["side"] == side]
    assert len(study.trials) == len(mine) == 24
    for t, o in zip(study.trials, mine):
        assert t.state.name == {"done": "COMPLETE", "failed": "FAIL"}[o["state"]], (t.state, o["state"])
        if t.state.name != "COMPLETE":
            continue
        assert t.values == [o["objectives"][k] for k in ("accuracy", "seconds", "parameters")], (t.values, o)
        assert {k: v for k, v in t.params.items()} == o["settings"], (t.params, o["settings"])
        assert isinstance(t.params["dim"], int) and t.params["solver"] in ("picard", "anderson")
        assert t.datetime_complete >= t.datetime_start
        assert t.intermediate_values == evaluations(side, t.number), t.intermediate_values  # accuracy after each evaluation, by its step
    table = {r["trial"]: r for r in rows}
    for o in mine:
        r = table[o["trial"]]
        assert float(r["train.lr"]) == o["settings"]["train.lr"] and int(r["dim"]) == o["settings"]["dim"]
    front = {t.number for t in study.best_trials}
    json.dump(sorted(front), open(f"{side}.front", "w"))
END
}
check 'Optuna, csv and json read the same numbers' read_back

fronts() { # Optuna's front is ours
    for side in ep bp; do
        "$tenon" lab best s.db --front --json | "$python" -c "
import json, sys
ours = sorted(o['number'] for o in map(json.loads, sys.stdin) if o['side'] == '$side')
theirs = json.load(open('$side.front'))
sys.exit(ours != theirs and f'$side: {ours} {theirs}')" || return 1
    done
}
check 'the front is that of Optuna' fronts

check 'the page is written' "$tenon" lab plot s.db --html=s.html 2>/dev/null
in_browser() {
    timeout 60 chromium --headless --no-sandbox --user-data-dir="$work/profile" --disable-gpu --virtual-time-budget=2000 --dump-dom "file://$work/s.html" >dom.html 2>browser.log || { tail -3 browser.log; return 1; }
    "$python" - <<'END'
import re
page, dom = open("s.html").read(), open("dom.html").read()
assert dom.count("<svg") == page.count("<svg") == 1 + 2 + 2 + 1 + 2 + 1, (dom.count("<svg"), page.count("<svg"))
assert "</html>" in dom and "Study s" in dom and not re.search(r'(src|href)=|<script|url\(', page)
for tag in "path", "circle", "rect", "table", "tr":     # nothing was dropped as malformed
    assert len(re.findall(f"<{tag}[ >]", dom)) == len(re.findall(f"<{tag}[ >]", page)), tag
END
}
check 'a browser draws all of the page' in_browser
drawn() {
    timeout 60 chromium --headless --no-sandbox --user-data-dir="$work/profile" --disable-gpu --hide-scrollbars --window-size=900,3000 --screenshot="$work/s.png" "file://$work/s.html" >browser.log 2>&1
    [ "$(stat -c %s s.png 2>/dev/null || echo 0)" -gt 50000 ]
}
check 'and it shows' drawn

for chart in history pareto parallel importance timeline curves; do
    check "chart $chart" "$tenon" lab plot s.db $chart --svg=$chart.svg 2>/dev/null
    check "chart $chart is XML" "$python" -c "import sys, xml.dom.minidom; xml.dom.minidom.parse('$chart.svg')"
done
check 'show' grep -q 'objective   parameters' <("$tenon" lab show s.db ep/3)
check 'diff' grep -q 'setting    beta' <("$tenon" lab diff s.db ep/3 bp/3)
check 'ls' grep -q '24 planned: 24 done' <("$tenon" lab ls s.db)
"$tenon" lab compare s.db --top=1 --seeds=5 --json >verdicts 2>/dev/null
check 'compare gives three verdicts' [ "$(grep -c '"verdict"' verdicts)" = 3 ]
"$tenon" lab compare s.db --top=1 --seeds=5 --json >again 2>/dev/null
check 'and the same again, running nothing' cmp -s verdicts again

# --- a large one: 100,000 trials open, list and plot in under 2 s of processor time on a quick core; a Neoverse-N1 takes 2.3 ---
large() {
    "$python" - <<'END'
import json, random, sqlite3
db = sqlite3.connect("s.db")
columns = [c[1] for c in db.execute("pragma table_info(trial)")]
rows = db.execute("select * from trial where state = 2 and number < 24 and kind = 0").fetchall()
at = {c: i for i, c in enumerate(columns)}
random.seed(1)
after = dict(db.execute("select side, max(number) + 1 from trial where kind < 2 group by side"))
out, first = [], db.execute("select max(id) from trial").fetchone()[0] + 1
for k in range(100000 - db.execute("select count(*) from trial").fetchone()[0]):
    r = list(rows[k % len(rows)])
    r[at["id"]], r[at["number"]], r[at["sum"]] = first + k, after[r[at["side"]]], None
    after[r[at["side"]]] += 1
    y = json.loads(r[at["y"]])
    r[at["y"]] = json.dumps([y[0] * random.random(), y[1] * random.random() * 10, round(y[2] * random.random() * 10)])
    out.append(r)
db.executemany(f"insert into trial values ({','.join('?' * len(columns))})", out)
db.commit()
END
    TIMEFORMAT='%U %S'
    local took
    took=$({ time { "$tenon" lab ls s.db >ls.out && "$tenon" lab ls s.db trials >all.out && "$tenon" lab plot s.db pareto --svg=large.svg 2>/dev/null; } ; } 2>&1 | tail -1)
    echo "100,000 trials: ls, all trials and the front took $took s of the processor"
    [ "$(wc -l <all.out)" -ge 100000 ] && [ "$(stat -c %s large.svg)" -lt 3000000 ] && awk "BEGIN { split(\"$took\", t, \" \"); exit !(t[1] + t[2] < 3.5) }"
}
check '100,000 trials' large

echo "$passed passed, $failed failed"
[ $failed = 0 ]
