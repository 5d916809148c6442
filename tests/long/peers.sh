#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Other people's models against other people's programs: folders, GGUF files, prompts and tokens (tests/peers). Runs what can be imported by PEERS_PYTHON
# (python3): torch, transformers, gguf, tokenizers, sentencepiece. With PEERS_MODEL=MODEL.gguf also that model, on 20 texts; with
# PEERS_VOCABS=FOLDER the vocabularies there against the ids that llama.cpp expects (vendor/llama.cpp/models of the source package of
# llama-cpp-python). Ends with "N passed, N failed"; each program is one test. The loss on a long text (check_perplexity.py) is by hand.
set -u
cd "$(dirname "$0")/../.." || exit 2
python=${PEERS_PYTHON:-python3} model=${PEERS_MODEL:-} vocabs=${PEERS_VOCABS:-} passed=0 failed=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
peer() { # peer "MODULES" PROGRAM [ARGUMENT ...]
    local modules=$1
    shift
    if ! "$python" -c "import ${modules// /, }" 2>/dev/null; then
        echo "skipped: $1 needs ${modules// /, } ($python)"
    elif "$python" "tests/peers/$1" "${@:2}" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "$1: $(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        grep -a FAILED "$log" | head -n 5
        tail -n 3 "$log"
    fi
}
# shellcheck disable=SC2086
peer "gguf numpy" check_gguf.py $model
peer "torch transformers numpy" check_hf.py
peer "torch transformers gguf" check_gguf_models.py
if [ -z "$vocabs" ]; then
    echo "skipped: check_gguf_vocab.py needs PEERS_VOCABS=FOLDER, with ggml-vocab-NAME.gguf"
elif ! find "$vocabs" -name 'ggml-vocab-*.gguf.inp' | grep -q .; then
    failed=$((failed + 1))
    echo "FAILED check_gguf_vocab.py: no ggml-vocab-NAME.gguf.inp in PEERS_VOCABS=$vocabs"
else
    peer "numpy" check_gguf_vocab.py "$vocabs"
fi
peer "tokenizers transformers jinja2" check_chat.py
peer "tokenizers sentencepiece google.protobuf" check_tokenizers.py
peer "torch transformers" ../../bench/peers/gpu_inputs.py --check
peer "torch transformers" ../../bench/peers/gpu_decode.py --check
peer "torch" ../../bench/peers/wire_check.py
[ -z "$model" ] || peer "torch transformers accelerate gguf" check_texts.py "$model"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
