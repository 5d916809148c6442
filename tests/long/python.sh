#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# The Python package under a type checker: mypy --strict is silent on it as installed, and on a program that uses it; a wrong call is seen.
# mypy is the system's (scripts/install-deps long) or, where there is none, PyPI's.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=python3
"$python" -m venv --system-site-packages "$work/venv" || exit 2
pip=("$work/venv/bin/pip" -q --disable-pip-version-check install)
"$work/venv/bin/python" -c 'import mypy' 2>/dev/null || "${pip[@]}" mypy || exit 2
isolation=--no-build-isolation
"$work/venv/bin/python" -c 'import numpy, setuptools, wheel' 2>/dev/null || isolation=
cp -r "$root/python" "$work/src"
"${pip[@]}" $isolation "$work/src" || exit 2
mypy() { (cd "$work" && "$work/venv/bin/python" -m mypy --strict "$@") >"$work/said" 2>&1 || { cat "$work/said"; return 1; }; }
wrong() { ! mypy wrong.py >/dev/null && [ "$(grep -c ': error:' "$work/said")" = 4 ]; }
cat >"$work/right.py" <<'END'
import numpy as np
import tenon

run: tenon.Run = tenon.train("ten_tiny", data="book.txt", steps=200, progress=lambda p: p.step > 100)
best: float = run.best["heldout"]
svg: str = run.plot("loss", log=True)
texts: list[tenon.Sample] = run.sample("Once", n=4, max_tokens=5)
net: tenon.Model = run.model(device="auto")
loss: float = net.gradients(np.zeros((1, 8), np.int32), np.zeros((1, 8), np.int32))
nats: float = net.evaluate([1, 2, 3])
exact: tenon.Metric = net.evaluate(split="test")["loss"]
END
cat >"$work/wrong.py" <<'END'
import tenon

run: int = tenon.train("ten_tiny", progress=lambda p: p.stepp > 100)
text: str = tenon.Run("runs/ten-1").sample("Once", n=4)
tenon.open(3)
END
cp "$root"/examples/python/*.py "$work"
check 'mypy --strict on the package' mypy -p tenon
check 'on a program' mypy right.py
check 'on the example' mypy train.py
check 'it sees what is wrong' wrong
echo "$passed passed, $failed failed"
[ $failed = 0 ]
