#!/usr/bin/env bash
# Draws the pictures of examples/README.md by running its commands, in order: examples/pictures.sh [TEXT]
# TEXT: the text of the first and third (default: data/jargon/jargon.txt, see `tenon data get jargon`). TENON: the command (build/tenon).
# Writes examples/pictures/*.svg; what the commands print goes to standard output. About two minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tenon=$(realpath "${TENON:-$here/../build/tenon}")
text=$(realpath "${1:-data/jargon/jargon.txt}")
[ -r "$text" ] || { echo "error: cannot read $text: run tenon data get jargon, or name a text" >&2; exit 2; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" && ln -s "$tenon" "$work/bin/tenon" && ln -s "$here" "$work/examples" && cp "$text" "$work/book.txt"
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/README.md" >"$work/commands"
(cd "$work" && PATH=$work/bin:$PATH COLUMNS=80 bash -ex commands) 2>&1
mkdir -p "$here/pictures" && cp "$work"/*.svg "$here/pictures/"
