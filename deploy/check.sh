#!/usr/bin/env bash
# Verifies everything in deploy/ and how releases are built, on Linux.
#
#   deploy/check.sh             units, manifests, compose file, Dockerfile, workflows' shell, and the versions that builds report
#   deploy/check.sh packages    a snapshot of a release for this platform, by goreleaser; with --all for every platform
#
# Needs Go and git. It installs systemd (for systemd-analyze) and man-db by apt where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

goreleaser() { go run github.com/goreleaser/goreleaser/v2@v2.16.0 "$@"; } # the newest for Go 1.26; also in .github/workflows/release.yml

step() { printf -- '-- %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends "$2"; } >/dev/null; }
expect() { [ "$2" = "$3" ] || fail "$1: $2, and not $3"; }

# clone makes a clone of the commit that is checked out, whatever else is in this folder.
clone() {
	git clone -q --no-hardlinks "$root" "$1"
	git -C "$1" remote set-url origin https://github.com/natscampaign/election.git # goreleaser takes owner and name from it
}

files() {
	step "the Dockerfile builds, without what .dockerignore leaves out"
	clone "$tmp/context"
	mapfile -t ignored <deploy/docker/Dockerfile.dockerignore
	(cd "$tmp/context" && shopt -s globstar nullglob && for pattern in "${ignored[@]}"; do rm -rf $pattern; done)
	build=$(awk '/^RUN CGO_ENABLED/ { on = 1; sub(/^RUN /, "") } on { print; if (!/\\$/) exit }' deploy/docker/Dockerfile)
	(cd "$tmp/context" && TARGETOS=$(go env GOOS) TARGETARCH=$(go env GOARCH) VERSION=v1.2.3-docker bash -ec "${build//\/out\//$tmp/out/}")
	cli=$tmp/out/election-cli
	expect "version that the linker was given" "$("$cli" --version)" 1.2.3-docker
	! grep -aq ld-linux "$cli" || fail "the binary is not static"

	step "candidates report the version of the command"
	touch "$tmp/campaign" # which is read before the shell opens it for the command
	"$cli" campaign versions --embedded --json >"$tmp/campaign" 2>/dev/null &
	candidate=$!
	for _ in $(seq 300); do
		url=$(sed -n 's/.*"server":"\([^"]*\)".*/\1/p' "$tmp/campaign")
		[ -z "$url" ] || break
		sleep 0.1
	done
	candidates=$("$cli" candidates versions --json -s "$url")
	kill "$candidate" && wait "$candidate" || true
	grep -q '"version": *"1.2.3-docker"' <<<"$candidates" || fail "version of candidates: $candidates"

	step "units"
	need systemd-analyze systemd
	mkdir "$tmp/units"
	for unit in deploy/systemd/*.service; do
		sed "s|/usr/bin/election-cli|$cli|" "$unit" >"$tmp/units/$(basename "$unit")"
	done
	found=$(systemd-analyze verify --man=no "$tmp"/units/*.service 2>&1) || fail "systemd-analyze verify: $found"
	[ -z "$found" ] || fail "systemd-analyze verify: $found"
	systemd-analyze security --offline=true --threshold=15 "$tmp/units/election-file@.service" >/dev/null || fail "election-file@.service is exposed"
	systemd-analyze security --offline=true --threshold=15 "$tmp/units/election-witness.service" >/dev/null || fail "election-witness.service is exposed"

	step "scripts and notes of a release"
	for script in deploy/package/*.sh; do sh -n "$script"; done
	! deploy/package/notes.sh v999.0.0 2>/dev/null || fail "notes of a version that is not in the changelog"
	[ -n "$(deploy/package/notes.sh Unreleased)" ] || fail "no notes"

	step "manifests, and the compose file on three servers"
	(cd deploy && go mod tidy -diff && go vet ./... && ELECTION_CLI=$cli go test -count=1 ./...)

	step "version of go install"
	proxy=$tmp/proxy/github.com/natscampaign/election/@v
	mkdir -p "$proxy"
	version=v0.99.0
	mapfile -t nested < <(git ls-files '*/go.mod' | sed 's|^\(.*\)/go.mod$|:(exclude)\1|') # a module contains no other
	echo "{\"Version\":\"$version\"}" >"$proxy/$version.info"
	echo "$version" >"$proxy/list"
	git show HEAD:go.mod >"$proxy/$version.mod"
	git archive --format=zip --prefix="github.com/natscampaign/election@$version/" -o "$proxy/$version.zip" HEAD . "${nested[@]}"
	GOBIN=$tmp/bin GOMODCACHE=$tmp/modules GOFLAGS="-trimpath -modcacherw" GOSUMDB=off \
		GOPROXY="file://$tmp/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" \
		go install "github.com/natscampaign/election/cmd/election-cli@$version" 2>"$tmp/log" || fail "$(cat "$tmp/log")"
	expect "version of go install" "$("$tmp/bin/election-cli" --version)" "${version#v}"

	step "version of a checkout"
	clone "$tmp/checkout"
	(cd "$tmp/checkout" && go build -trimpath -buildvcs=true -o "$tmp/bin/checkout" ./cmd/election-cli)
	commit=$(git rev-parse HEAD)
	version=$("$tmp/bin/checkout" --version)
	[[ $version == *"${commit:0:12}" ]] || fail "version of a checkout: $version, commit $commit"
}

packages() {
	clone "$tmp/release"
	cd "$tmp/release"
	step "goreleaser check"
	goreleaser check >"$tmp/log" 2>&1 || fail "$(cat "$tmp/log")"
	if [ "${1-}" != --all ]; then
		sed -i "s/goos: \[.*\]/goos: [$(go env GOOS)]/; s/goarch: \[.*\]/goarch: [$(go env GOARCH)]/" .goreleaser.yaml
		git -c user.name=check -c user.email=check@localhost commit -qam "One platform" # a version of changed files would say so
	fi
	step "snapshot"
	goreleaser release --snapshot --clean --skip=publish,sign,docker >"$tmp/log" 2>&1 || fail "$(cat "$tmp/log")"
	ls -l dist
	(cd dist && sha256sum --quiet -c checksums.txt)

	step "the package"
	need dpkg-deb dpkg
	need man man-db
	dpkg-deb -x dist/*_linux_"$(go env GOARCH)".deb "$tmp/deb"
	cli=$tmp/deb/usr/bin/election-cli
	version=$("$cli" --version)
	[[ $version == *-dev.$(git rev-parse --short HEAD) ]] || fail "version of a snapshot: $version"
	MANWIDTH=80 man --warnings -l "$tmp/deb/usr/share/man/man1/election-cli.1.gz" >"$tmp/man" 2>"$tmp/warnings"
	[ ! -s "$tmp/warnings" ] || fail "the manual page: $(cat "$tmp/warnings")"
	grep -q 'run \[<flags>\] <key> -- <program>' <(tr -s ' \n' ' ' <"$tmp/man" | sed 's/.\x08//g') || fail "the manual page has no commands"
	bash -n "$tmp/deb/usr/share/bash-completion/completions/election-cli"
	for file in usr/share/zsh/vendor-completions/_election-cli usr/share/fish/vendor_completions.d/election-cli.fish usr/lib/systemd/system/election-{run,file}@.service usr/lib/systemd/system/election-witness.service usr/share/doc/election-cli/copyright; do
		[ -s "$tmp/deb/$file" ] || fail "the package has no $file"
	done
	for archive in dist/*.tar.gz; do
		grep -q LICENSE <<<"$(tar -tf "$archive")" || fail "$archive has no licence"
	done
	grep -q '"pkg:golang/github.com/nats-io/nats.go@v' dist/*_linux_"$(go env GOARCH)".spdx.json || fail "the SBOM does not name nats.go"

	step "the same commit gives the same binary elsewhere"
	clone "$tmp/again"
	cd "$tmp/again"
	git -c protocol.file.allow=always pull -q "$tmp/release" HEAD
	CGO_ENABLED=0 go build -trimpath -buildvcs=true -o "$tmp/rebuilt" \
		-ldflags "-s -w -X github.com/natscampaign/election/internal/version.stamped=$version" ./cmd/election-cli
	cmp "$tmp/rebuilt" "$cli"
}

case ${1-} in
"") files ;;
packages) packages "${2-}" ;;
*) echo "usage: deploy/check.sh [packages [--all]]" >&2; exit 2 ;;
esac
echo "everything in deploy/ is as it should be"
