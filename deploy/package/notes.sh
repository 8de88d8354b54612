#!/bin/sh
# Prints the section of the changelog for a version, and fails if there is none. Usage: notes.sh v1.2.3
set -eu
cd "$(dirname "$0")/../.."
awk -v heading="## [${1#v}]" '
	index($0, heading) == 1 { found = 1; next }
	/^## / || /^\[[^]]*\]: / { if (found) exit }
	found { print; lines++ }
	END { exit !lines }
' CHANGELOG.md || { echo "CHANGELOG.md has no section for ${1#v}" >&2; exit 1; }
