// Command sbom writes the software bill of materials of a Go binary as SPDX 2.3 in JSON: the modules that the linker put into it, by
// the binary's own build information.
//
// Usage: sbom BINARY DOCUMENT
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID           string        `json:"SPDXID"`
	Name             string        `json:"name"`
	Version          string        `json:"versionInfo,omitempty"`
	FileName         string        `json:"packageFileName,omitempty"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	License          string        `json:"licenseDeclared"`
	Purpose          string        `json:"primaryPackagePurpose"`
	Comment          string        `json:"comment,omitempty"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	ExternalRefs     []externalRef `json:"externalRefs"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	binaryID   = "SPDXRef-Binary"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY DOCUMENT")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the document of a binary to a file.
func write(binary, file string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	d, err := describe(filepath.Base(binary), sha256.Sum256(content), info)
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// describe returns the document of a binary. Everything in it comes from the binary, so that one binary has one document.
func describe(name string, sum [sha256.Size]byte, info *debug.BuildInfo) (*document, error) {
	created, err := committed(info)
	if err != nil {
		return nil, err
	}
	main := spdxPackage{
		SPDXID: binaryID, Name: info.Main.Path, Version: info.Main.Version, FileName: name, DownloadLocation: "NOASSERTION",
		License: "Apache-2.0", Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", fmt.Sprintf("%x", sum)}},
		ExternalRefs: purl(info.Main.Path, info.Main.Version),
	}
	d := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: name,
		DocumentNamespace: fmt.Sprintf("https://%s/sbom/%x", info.Main.Path, sum),
		CreationInfo:      creationInfo{created, []string{"Tool: github.com/natscampaign/election/deploy/sbom"}},
		Packages:          []spdxPackage{main},
		Relationships:     []relationship{{documentID, "DESCRIBES", binaryID}},
	}
	d.contains("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.contains(m.Path, m.Version, m.Sum)
	}
	return d, nil
}

// contains adds a module that the binary contains.
func (d *document) contains(path, version, sum string) {
	id := "SPDXRef-" + notInID.ReplaceAllString(path+"-"+version, "-")
	p := spdxPackage{
		SPDXID: id, Name: path, Version: version, DownloadLocation: "NOASSERTION", License: "NOASSERTION", Purpose: "LIBRARY",
		ExternalRefs: purl(path, version),
	}
	if sum != "" {
		p.Comment = "go.sum: " + sum
	}
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, relationship{binaryID, "CONTAINS", id})
}

var notInID = regexp.MustCompile(`[^0-9A-Za-z.-]`)

// purl returns the package URL of a module, by which scanners for vulnerabilities find it.
func purl(path, version string) []externalRef {
	return []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + url.QueryEscape(version)}}
}

// committed returns the time of the commit from which a binary was built.
func committed(info *debug.BuildInfo) (string, error) {
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			t, err := time.Parse(time.RFC3339, s.Value)
			return t.UTC().Format(time.RFC3339), err
		}
	}
	return "", errors.New("the binary does not say from which commit it was built: build it with -buildvcs=true")
}
