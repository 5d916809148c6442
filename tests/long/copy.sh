#!/usr/bin/env bash
# Does the network remember one token over 4,096? Its default layers must name the first token of a sequence of noise after
# the last one in 99 % of fresh sequences (tests/long/copy.c says how it is trained). Ends with "N passed, N failed".
#
# Measured in November 2026 on two shared cores: 64 tokens after 700 steps, 4,096 after 20 more, 65 s in all (21 s of one core).
# ten_b of the same width (k=16), with its historical first values: 64 tokens after 2,950 steps, 38 % at 256 after a minute.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build} cc=${CC:-gcc} passed=0 failed=0
pkgs=$(sed -n 's/^PKGS *:= *//p' Makefile)
mkdir -p "$build/long" || exit 2
# shellcheck disable=SC2046,SC2086
$cc -std=gnu11 -O1 -Iinclude -I"$build/include" -Isrc -o "$build/long/copy" tests/long/copy.c -rdynamic \
    -Wl,--whole-archive "$build/libtenon.a" -Wl,--no-whole-archive $(pkg-config --libs $pkgs) -lm -lpthread -ldl || exit 2
if "$build/long/copy" 4096 170 pattern=DO dim=32 layers=2 vocab=10 train.context=4096 train.lr=5e-3 train.warmup=20 \
    train.schedule=constant train.decay=0; then passed=1; else failed=1; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
