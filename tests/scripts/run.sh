#!/usr/bin/env bash
# Tests of the scripts: each check must find what it is for and leave good files alone. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
tree=$(mktemp -d) && trap 'rm -rf "$tree"' EXIT
passed=0 failed=0

expect() { # $1: exit code, $2: a pattern the output must have ("" for none), $3: what is tested, then the command
    local code=$1 pattern=$2 name=$3 out rc
    shift 3
    out=$("$@" 2>&1)
    rc=$?
    if [ $rc = "$code" ] && grep -qE -- "$pattern" <<<"$out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s: exit code %s (expected %s), pattern /%s/ in:\n%s\n' "$name" "$rc" "$code" "$pattern" "$out"
    fi
}

fresh() { rm -rf "$tree"; mkdir -p "$tree"/{src/base,src/ops/x,src/plan,src/cli,include/tenon}; printf 'all:\n' >"$tree/Makefile"; }
put() { printf '%b' "$2" >"$tree/$1"; }
lines() { yes 'x;' | head -n "$1"; }

fresh
put src/base/a.h '#include <stdio.h>\n'
put src/plan/p.h '#include "ops/x/x.h"\n#include "base/a.h"\n#include <tenon/t.h>\n'
put src/ops/x/x_test.c '#include "plan/p.h"\n'
expect 0 '^3 passed, 0 failed$' "layers: downward includes and tests pass" scripts/check-layers "$tree"
put src/ops/x/x.h '/* x */\n #  include "plan/p.h" /* up */\n'
expect 1 '^src/ops/x/x.h:2: ' "layers: ops must not include plan" scripts/check-layers "$tree"
put src/ops/x/x.h '#include "ops/x/x_test.c"\n'
expect 1 'includes the test' "layers: nothing includes a test" scripts/check-layers "$tree"
put src/ops/x/x.h '#include "../../base/a.h"\n'
expect 1 'path from src/' "layers: no relative paths" scripts/check-layers "$tree"
put src/ops/x/x.h 'cudaFuncAttributeMaxDynamicSharedMemorySize\n'
expect 1 'tn_cuda_allow_shared' "layers: shared memory is asked for through the backend" scripts/check-layers "$tree"
put src/ops/x/x.h ''
mkdir -p "$tree/src/plan/one" "$tree/src/plan/two"
put src/plan/one/a.h '#include "plan/two/b.h"\n'
put src/plan/two/b.h '#include "plan/q.h"\n'
put src/plan/q.h '#include "plan/one/a.h"\n'
expect 1 'include each other' "layers: rooms form no cycle" scripts/check-layers "$tree"
rm -r "$tree/src/plan/one" "$tree/src/plan/two" "$tree/src/plan/q.h"
put include/tenon/t.h '#include "base/a.h"\n'
expect 1 '^include/tenon/t.h:1: .*public header' "layers: public headers stand alone" scripts/check-layers "$tree"

fresh
lines 600 >"$tree/src/base/a.c"
{ echo '/* A table.'; echo ' * long: one row per op */'; lines 700; } >"$tree/src/base/b.c"
expect 0 '^3 passed, 0 failed$' "size: 600 lines, and more with a reason" scripts/check-size "$tree"
lines 601 >"$tree/src/base/a.c"
expect 1 '^src/base/a.c: 601 lines' "size: 601 lines" scripts/check-size "$tree"
{ echo '/* long: it is */'; lines 1000; } >"$tree/src/base/a.c"
expect 1 '^src/base/a.c: 1001 lines' "size: no reason is good enough beyond 1000" scripts/check-size "$tree"
rm "$tree/src/base/a.c"
{ printf '| %0150d |\n\n```\n%0150d 1\n```\n\n    %0150d 1\n\n' 1 2 3; printf '%0128d 1\n- [x](%0150d)\n' 1 2; } >"$tree/a.md"
expect 0 '^3 passed, 0 failed$' "size: 130 columns, wider tables, code and links" scripts/check-size "$tree"
printf 'x\n%0129d 1\n' 1 >"$tree/a.md"
expect 1 'a.md:2: over 130 columns' "size: 131 columns of a document" scripts/check-size "$tree"
lines 301 >"$tree/Makefile"
expect 1 '^Makefile: 301' "size: Makefile" scripts/check-size "$tree"

fresh
put src/base/a.c '/* never exit() here,\n * nor abort() */ int f(void); // exit(1)\nconst char *s = "exit(1) \\" abort()";\nvoid pthread_exit(void *);\nint g = sizeof "/XXXXXX";\n'
put src/cli/main.c 'void f(void) { exit(2); }\n'
put Makefile '# no -ffast-math\nall:\n'
expect 0 '^[0-9]+ passed, 0 failed$' "words: comments, strings and the command pass" scripts/check-words "$tree"
put src/base/words.c '/* the same command goes on */\n'
expect 1 '^src/base/words.c:1:.*rerun this command to resume' "words: the field has others" scripts/check-words "$tree"
rm "$tree/src/base/words.c"
mkdir -p "$tree/docs"
{ printf '| word | meaning |\n| --- | --- |\n'; for i in $(seq 31); do echo "| w$i | A word. |"; done; } >"$tree/docs/glossary.md"
expect 1 '^docs/glossary.md:33:.*at most thirty' "words: a glossary of thirty" scripts/check-words "$tree"
rm -r "$tree/docs"
put src/base/b.c 'void f(void)\n{\n    /* why */ exit (1);\n}\n'
expect 1 '^src/base/b.c:3: ' "words: exit in the library" scripts/check-words "$tree"
put src/base/b.c '/* TO''DO: all */\n'
expect 1 '^src/base/b.c:1:.*unfinished' "words: unfinished work" scripts/check-words "$tree"
put src/base/b.c '/* see /wo''rk/x */\n'
expect 1 '^src/base/b.c:1:.*one machine' "words: machine paths" scripts/check-words "$tree"
put src/base/b.c ''
put Makefile 'CFLAGS = -O2 -ffast-math\n'
expect 1 '^Makefile:1:.*breaks NaN' "words: flags" scripts/check-words "$tree"

fresh # one case recorded with 1000 instructions, counted again
put counts '# arch compiler kernel case count\narm gcc-1 k x 1000\n'
put same 'arm gcc-1 k x 1030\n'
expect 0 '^ok .*\+3.00 %' "perf: 3 % more passes" tests/perf/gate.sh --compare "$tree/same" "$tree/counts"
put more 'arm gcc-1 k x 1031\n'
expect 1 '^FAILED x .*\+3.10 %' "perf: more than 3 % fails" tests/perf/gate.sh --compare "$tree/more" "$tree/counts"
put less 'arm gcc-1 k x 900\n'
expect 0 '^less .*-10.00 %' "perf: less is said" tests/perf/gate.sh --compare "$tree/less" "$tree/counts"
put other 'arm gcc-2 k x 5000\n'
expect 0 'line to add: arm gcc-2 k x 5000$' "perf: another compiler has no record" tests/perf/gate.sh --compare "$tree/other" "$tree/counts"
put strange 'arm gcc-1 none x unsupported\n'
expect 0 '^skip' "perf: instructions valgrind does not know" tests/perf/gate.sh --compare "$tree/strange" "$tree/counts"
put broken 'arm gcc-1 none x failed\n'
expect 1 '^0 passed, 1 failed$' "perf: a case that cannot be counted" tests/perf/gate.sh --compare "$tree/broken" "$tree/counts"

expect 0 '' "deps: nothing missing, nothing said" scripts/install-deps build unit
expect 2 'none of' "deps: an unknown need" scripts/install-deps teh-build
mkdir -p "$tree/bin" # a machine of a few tools only, without apt-get
for tool in bash dirname env; do ln -sf "$(type -P $tool)" "$tree/bin/$tool"; done
expect 1 'libyaml with headers' "deps: says what is needed without apt-get" env PATH="$tree/bin" bash scripts/install-deps build
for tool in id grep; do ln -sf "$(type -P $tool)" "$tree/bin/$tool"; done
ln -sf "$(type -P false)" "$tree/bin/apt-get"
expect 1 '^missing packages: gcc .*libyaml-dev' "deps: --check lists packages" env PATH="$tree/bin" bash scripts/install-deps --check build

# A folder never mixes ways of compiling; the test takes one object, in a folder with an absolute name.
object() { env -u MAKEFLAGS -u CUDA make --no-print-directory V=1 BUILD="$tree/build" "$@" "$tree/build/obj/src/base/clock.o"; }
expect 0 ' -c ' "build: compiles" object CUDA=0
expect 0 'is up to date\.$' "build: the same options compile nothing" object CUDA=0
expect 0 'is up to date\.$' "build: warnings as errors are the same objects" object CUDA=0 WERROR=1
expect 0 ' -O1 ' "build: other flags compile anew" object CUDA=0 CFLAGS=-O1
if (PATH="$PATH:/usr/local/cuda/bin" command -v nvcc >/dev/null); then
    expect 0 'is up to date\.$' "build: kernels for GPUs change no other object" object CUDA=1 CUDA_ARCHS=90 CFLAGS=-O1
    expect 0 'nvcc .* 90$' "build: how they are compiled is remembered" cat "$tree/build/options.cuda"
fi
expect 0 '^CC   src/base/clock.o$' "build: a line for each file" object CUDA=0 CFLAGS=-O2 V=
expect 2 'Wnonsense' "build: what the compiler says is shown" object CUDA=0 CFLAGS=-Wnonsense V=

page='.\\" A comment\n.TH x 1\n.SH NAME\nx \\- y\n.SH SYNOPSIS\n.B x\nhidden words that must never be shown in the text at all.\n.SH DESCRIPTION\nThe\n.BR open (2)\ncall opens \\fIthe file\\fP that is\n.IR named ,\nand nothing else at all.\n.nf\nint code;\n.fi\n.TP\n.B \\-v\nSay more about what is being done, step by step.\n'
put page "$page"
expect 0 '^The open\(2\) call opens the file that is named, and nothing else at all\.$' "text: roff becomes prose" awk -f scripts/roff-text.awk "$tree/page"
expect 0 '^-v: Say more' "text: labels" awk -f scripts/roff-text.awk "$tree/page"
expect 1 '' "text: code and lists go" bash -c "awk -f '$root/scripts/roff-text.awk' '$tree/page' | grep -qE 'hidden|code'"
expect 0 'from a grammar' "text: the grammar works without a network" scripts/demo-text "$tree/text.txt" --from grammar

# Solver calls of one epoch: 5 batches of training in two phases and one through time, 1 of evaluation in each run.
expect 0 'd4_early_solver_calls +17\.0000 calls' "bench: the workload of the TEP report" \
    bench/w2/run.sh --only=early task=xor task.size=40 dim=4 train.epochs=1 train.batch=8
expect 2 'grad is set by this workload' "bench: its own settings are refused" bench/w2/run.sh grad=implicit
expect 2 'choose full, early or faithful' "bench: an unknown row is refused" bench/w2/run.sh --only=late

# What people run after a clone names nothing outside the repository: every ../ in it leads to something that is there, and no path starts in
# somebody's home.
outside() { # $1: a repository, then folders in it
    local in=$1 file path found=0
    shift
    while IFS=: read -r file path; do
        path=$(dirname "$file")/$path
        [ -e "$in/$path" ] && [[ $(realpath "$in/$path")/ == "$(realpath "$in")"/* ]] && continue
        echo "$file: $path is not in the repository" && found=1
    done < <(cd "$in" && grep -roE '(\.\./)+[A-Za-z0-9._/-]*' "$@")
    (cd "$in" && grep -rnE "(^|[[:space:]\"'=(\`])(~|/(home|root|work|mnt|srv|Users))/" "$@") && found=1
    return $found
}
fresh
mkdir -p "$tree/examples/a"
put examples/a/run.sh 'root=$(dirname "$0")/../..\ntext=data/jargon\n[x](../../Makefile)\n'
expect 0 '' "paths: inside the repository" outside "$tree" examples
put examples/a/run.sh 'text=$root/../shared/data/text\n'
expect 1 'run.sh: .*[.][.]/shared/data/text' "paths: a folder beside the repository" outside "$tree" examples
put examples/a/run.sh 'text=../../../x\n'
expect 1 '../../../x' "paths: above the repository" outside "$tree" examples
put examples/a/run.sh 'tenon train data=/home/me/book.txt\n'
expect 1 'book.txt' "paths: a home" outside "$tree" examples
expect 0 '' "paths: examples and studies stay in the repository" outside "$root" examples studies

# README: a figure that its page does not have, a command of unknown duration. All pages: links that lead nowhere. Only where python3 is: a bare machine has none.
if command -v python3 >/dev/null; then
    expect 0 '^$' "readme: figures, links, durations" python3 tests/scripts/readme.py "$root"
    rm -rf "$tree" && mkdir -p "$tree" && cp -r README.md docs examples bench include ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md "$tree"
    sed -i 's/2\.67 and 18\.7/2.67 and 19.7/; s/ (a second) |$/ |/' "$tree/README.md"
    expect 1 '19\.7 is not on bench/results/h200.md' "readme: a figure of its own" python3 tests/scripts/readme.py "$tree"
    expect 1 'no duration: tenon train xor_tep' "readme: a command that may take hours" python3 tests/scripts/readme.py "$tree"
    printf '\n## A `b_c` (d)\n\n```sh\n# no heading\n```\n\n[x](#a-b_c-d) [x](lab.md#no-heading) [x](wire.md#no-heading) [x](none.md)\n' >>"$tree/docs/wire.md"
    expect 1 '^docs/wire.md: no heading lab.md#no-heading$' "pages: a heading that is not there" python3 tests/scripts/readme.py "$tree"
    expect 1 '^docs/wire.md: no heading wire.md#no-heading$' "pages: a comment is no heading" python3 tests/scripts/readme.py "$tree"
    expect 1 '^docs/wire.md: link to none.md: not there$' "pages: a page that is not there" python3 tests/scripts/readme.py "$tree"
    expect 1 '' "pages: a heading with code" bash -c "python3 tests/scripts/readme.py '$tree' | grep -q a-b_c-d"

    # Items: the file itself, then with one mistake each in its first line.
    unit=$(realpath -m "${BUILD:-build}/unit")
    [ -x "$unit" ] || unit=
    expect 0 '^$' "items: fields, verdicts, commands" python3 tests/scripts/items.py "$root" $unit
    rm -rf "$tree" && mkdir -p "$tree/docs" && ln -s "$root"/{src,tests,scripts} "$tree" && cp -r bench "$tree"
    item() { # sed command on a good line
        sed "$1" <<<'{"item":"flow/1","title":"t","claim":"c","check":"k","command":"tenon bench flow_debug","figure":"1 ms","verdict":"met","machine":"m","commit":"0123abc","note":""}' >"$tree/bench/items.jsonl"
        grep -v '"flow/1"' bench/items.jsonl >>"$tree/bench/items.jsonl"
    }
    mistake() { # $1: sed command, $2: pattern, $3: what
        item "$1"
        expect 1 "$2" "items: $3" python3 tests/scripts/items.py "$tree" $unit
    }
    item ''
    expect 0 '^$' "items: a good line" python3 tests/scripts/items.py "$tree" $unit
    mistake 's/}$//' 'items.jsonl:1: ' "what is no JSON"
    mistake 's/"claim":"c",//' 'expected, in this order' "a field that is missing"
    mistake 's/"met"/"nearly"/' "verdict 'nearly'" "an unknown verdict"
    mistake 's/"1 ms"/null/' 'without a figure' "a verdict without a figure"
    mistake 's/"met"/"open"/' 'flow/1: open: the note' "open, and no reason"
    mistake 's/"met"/"impossible"/; s/"note":""/"note":"too much"/' 'has the arithmetic' "impossible, and no arithmetic"
    mistake 's/"0123abc"/null/' 'its machine and commit' "a figure without its commit"
    mistake 's/"0123abc"/"yesterday"/' "commit 'yesterday'" "a commit that is none"
    if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ] && [ -e .git ]; then
        ln -s "$root/.git" "$tree/.git"
        mistake 's/"0123abc"/"0123abcd"/' 'commit 0123abcd is not in this repository' "a commit of another repository"
        rm "$tree/.git"
    fi
    mistake 'd' 'flow/1 is missing' "an item that is missing"
    mistake 's|flow/1"|flow/99"|' 'flow/99: add it to' "an item that no list has"
    mistake 's/.*/&\n&/' 'also in line 1' "an item twice"
    mistake 's/tenon bench/tenon brench/' 'no verb brench' "a verb that is not there"
    mistake 's/flow_debug/flow_debugg/' 'no model or preset' "a preset that is not there"
    mistake 's|tenon bench|tests/none.sh|' 'tests/none.sh is not there' "a script that is not there"
    mistake 's|tenon bench flow_debug|bench/flow_items.py none|' 'has no part none' "a part that is not there"
    [ -z "$unit" ] || mistake 's|tenon bench flow_debug|build/unit no_such_test|' 'no test whose name' "a test that is not there"

    # docs/performance.md is what bench/performance.py makes of the items.
    anew() { diff <(python3 "$1/bench/performance.py" 2>&1) "$1/docs/performance.md"; }
    expect 0 '^$' "performance: the page is made of the items (bench/performance.py > docs/performance.md)" anew "$root"
    cp docs/performance.md "$tree/docs"
    item 's/"1 ms"/"2 ms"/'
    expect 1 '^< [|] flow/1 .* 2 ms' "performance: a figure that is not on the page" anew "$tree"
    item 's/"met"/"nearly"/'
    expect 1 "flow/1: verdict 'nearly'" "performance: an unknown verdict" anew "$tree"
    item 's|flow/1"|other/1"|'
    expect 1 'no family other' "performance: an unknown family" anew "$tree"
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
