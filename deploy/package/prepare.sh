#!/bin/sh
# Writes to build/ what goreleaser packs beside the binary: the manual page, shell completions, and the program that writes SBOMs.
# Usage: prepare.sh VERSION
set -eu
cd "$(dirname "$0")/../.."
rm -rf build
mkdir -p build/man build/completions
go build -trimpath -o build/cli -ldflags "-X github.com/natscampaign/election/internal/version.stamped=$1" ./cmd/election-cli
build/cli --help-man >build/man/election-cli.1
gzip -9nk build/man/election-cli.1
build/cli --completion-script-bash >build/completions/election-cli.bash
build/cli --completion-script-zsh >build/completions/_election-cli
build/cli --completion-script-fish >build/completions/election-cli.fish
go build -C deploy -o ../build/sbom ./sbom
