#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Do samplers search and are damaged databases refused, with more trials than the short tier takes: TPE and NSGA-II against random
# search on seven functions, 20 seeds each (sign test), verdicts on simulated studies, and a database with a byte changed in 11,000 ways. Ends with "N passed, N failed".
#
# Measured in November 2026 (wins of 20): TPE 20 on all seven in 150-200 trials; NSGA-II 20 on all seven in 600.
set -u
cd "$(dirname "$0")/../.." || exit 2
TENON_LONG=1 "${BUILD:-build}/unit" lab/search lab/verdict lab/verify | grep -v -e '\[ RUN' -e '\[       OK'
exit "${PIPESTATUS[0]}"
