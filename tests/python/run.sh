#!/usr/bin/env bash
# The Python package as a user gets it: a fresh venv, `pip install` of the checkout, then the families' drive.py and check.py against build/.
# The venv sees the system's numpy, setuptools and wheel (scripts/install-deps python), so that nothing is downloaded;
# where the interpreter has no numpy, pip fetches it. PYTHON names another interpreter.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$root" && realpath "${BUILD:-build}")
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=python3
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cp -r "$root/python" "$work/src" # pip builds beside the sources
printf 'build/libtenon.so:\n\tmkdir -p build && ln -s %s $@\n' "$build/libtenon.so" >"$work/Makefile" # as if nobody had run make
"$python" -m venv --system-site-packages "$work/venv"
isolation=--no-build-isolation
"$work/venv/bin/python" -c 'import numpy, setuptools, wheel' 2>/dev/null || isolation=
"$work/venv/bin/pip" -q --disable-pip-version-check install $isolation "$work/src"
export TENON=$build/tenon
[ -e "$work/build/libtenon.so" ] || { echo "pip install has not built the library"; exit 1; }
cd "$work" # not the checkout, whose folder python/ must not be what is imported
"$work/venv/bin/python" - "$root/VERSION" <<'END'
import importlib.metadata, sys, tenon
assert "venv" in tenon.__file__, tenon.__file__
assert tenon.__version__ == importlib.metadata.version("tenon") == open(sys.argv[1]).read().strip()
END
for script in "$root"/tests/families/*/drive.py; do "$work/venv/bin/python" "$script"; done # families that join by their rows
"$work/venv/bin/python" "$root/tests/python/check.py"
