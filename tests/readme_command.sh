#!/usr/bin/env bash
# Prints the README's N-th quick-start command, so that what is tested is what is written.
set -euo pipefail
awk -v wanted="$1" '
    /^<!-- quick start [0-9]+ -->$/ { block = $4 }
    /^```$/ { inside = 0 }
    inside && block == wanted { print; found = 1 }
    /^```sh$/ { inside = 1 }
    /^```/ && !inside { if (found) exit }
    END { exit !found }
' "$(dirname "$0")/../README.md"
