// Package validate checks what callers pass: names, keys, metadata, and texts that stand for numbers of bytes or for values of an [Enum].
// Each error names the value and says how to fix it. All but those of an Enum, which read text of other programs too, wrap
// [ErrInvalidOption].
package validate

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrInvalidOption is the error of package election for a value that cannot be used.
var ErrInvalidOption = errors.New("invalid option")

// Limits on what a candidate writes.
const (
	MaxNameBytes     = 255
	MaxKeyBytes      = 255
	MaxMetadataBytes = 8 << 10
)

// Errorf returns an error that wraps [ErrInvalidOption].
func Errorf(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, a...)...)
}

// Name checks the name of a candidate.
func Name(name string) error {
	switch {
	case name == "":
		return Errorf("the name is empty: give each candidate a name of its own, such as its host's")
	case len(name) > MaxNameBytes:
		return Errorf("the name %.20q… has %d bytes: use at most %d", name, len(name), MaxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return Errorf("the name %q has control characters or is not UTF-8: use printable text", name)
	case strings.TrimSpace(name) != name:
		return Errorf("the name %q begins or ends with a space: trim it", name)
	}
	return nil
}

var legalKey = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)

// IsKey reports whether a bucket takes a key of that text, whatever its length.
func IsKey(key string) bool { return legalKey.MatchString(key) }

// Key checks the key of an election.
func Key(key string) error {
	switch {
	case key == "":
		return Errorf("the key is empty: name the election, such as %q", "scheduler")
	case len(key) > MaxKeyBytes:
		return Errorf("the key %.20q… has %d bytes: use at most %d", key, len(key), MaxKeyBytes)
	case !IsKey(key):
		return Errorf("%q is not a key: use letters, digits, and - _ = / with single dots between them", key)
	}
	return nil
}

var legalNamespace = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) // colons are for recording rules

// IsNamespace reports whether the names of metrics may begin with ns and an underscore.
func IsNamespace(ns string) bool { return legalNamespace.MatchString(ns) }

// Namespace checks the namespace of metrics; an empty one is none.
func Namespace(namespace string) error {
	if namespace == "" || IsNamespace(namespace) {
		return nil
	}
	return Errorf("WithMetricsNamespace: %q begins no name of a metric: use letters, digits and _, and no digit first, such as %q", namespace, "shop")
}

// Pattern checks a key that may have the wildcards of NATS subjects: a * or > that is a part of its own, and for > the last.
func Pattern(pattern string) error {
	parts := strings.Split(pattern, ".")
	for i, part := range parts {
		if part == "*" || part == ">" && i == len(parts)-1 {
			parts[i] = "x"
		}
	}
	if Key(strings.Join(parts, ".")) != nil {
		return Errorf("%q is neither a key nor a pattern of keys: use letters, digits, and - _ = / with single dots between them, * for any one part, or > for all the rest", pattern)
	}
	return nil
}

// Metadata checks the metadata of a record.
func Metadata(m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return Errorf("metadata %q=%q: use keys that are not empty, and UTF-8", k, v)
		}
	}
	if size > MaxMetadataBytes {
		return Errorf("the metadata has %d bytes: use at most %d", size, MaxMetadataBytes)
	}
	return nil
}

// IsNil reports whether v is nil, or a nil pointer in an interface, as an unset variable of a concrete type becomes.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}
