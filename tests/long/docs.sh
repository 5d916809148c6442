#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# README and the pages of docs/ and examples/ do what they say. Ends with "N passed, N failed".
exec "$(dirname "$0")/../docs/run.sh"
