package record

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// secretBytes is the size of a secret, of a commitment and of an id: nobody guesses one, nor finds a secret for a commitment.
const secretBytes = 16

// A Secret ends a term: its holder alone knows the secret, and reveals it in the release. The zero Secret is none.
type Secret [secretBytes]byte

// A Commitment is the hash of a [Secret]. Every record of a term states it, so that whoever has read one of them recognises the release.
// The zero Commitment is none.
type Commitment [secretBytes]byte

// NewSecret returns a secret that nobody can guess.
func NewSecret() (s Secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// Commitment returns the commitment to s; none for no secret.
func (s Secret) Commitment() (c Commitment) {
	if s == (Secret{}) {
		return c
	}
	hash := sha256.Sum256(s[:])
	copy(c[:], hash[:])
	return c
}

// OpenedBy reports whether c is the commitment to s.
func (c Commitment) OpenedBy(s Secret) bool { return c != (Commitment{}) && s.Commitment() == c }

// MarshalText returns s as a record has it.
func (s Secret) MarshalText() ([]byte, error) { return encodeText(s[:]), nil }

// UnmarshalText reads what MarshalText returned. Any other text is no secret, and no error: the rest of the record is read all the same.
func (s *Secret) UnmarshalText(text []byte) error {
	decodeText(s[:], text)
	return nil
}

// Secrets are secrets as a record has them: in one text, because every candidate reads it at every change of the key.
type Secrets []Secret

// MarshalText returns s as a record has it.
func (s Secrets) MarshalText() ([]byte, error) {
	b := make([]byte, 0, len(s)*secretBytes)
	for _, secret := range s {
		b = append(b, secret[:]...)
	}
	return encodeText(b), nil
}

// UnmarshalText reads what MarshalText returned, of at most [MaxPredecessors] secrets. Any other text is none, and no error.
func (s *Secrets) UnmarshalText(text []byte) error {
	*s = nil
	var b [MaxPredecessors * secretBytes]byte
	if encoding.DecodedLen(len(text)) > len(b) {
		return nil
	}
	n, err := encoding.Decode(b[:], text)
	if err != nil || n%secretBytes != 0 || n == 0 {
		return nil
	}
	*s = make(Secrets, n/secretBytes)
	for i := range *s {
		copy((*s)[i][:], b[i*secretBytes:])
	}
	return nil
}

// MarshalText returns c as a record has it.
func (c Commitment) MarshalText() ([]byte, error) { return encodeText(c[:]), nil }

// UnmarshalText reads what MarshalText returned. Any other text is no commitment, and no error.
func (c *Commitment) UnmarshalText(text []byte) error {
	decodeText(c[:], text)
	return nil
}

var encoding = base64.RawURLEncoding.Strict()

func encodeText(b []byte) []byte { return encoding.AppendEncode(nil, b) }

func decodeText(b, text []byte) {
	clear(b)
	if encoding.DecodedLen(len(text)) == len(b) {
		if _, err := encoding.Decode(b, text); err != nil {
			clear(b)
		}
	}
}

// NewID returns an id that nobody can guess: of a candidate, or of one of its writes. The time in it keeps ids apart that two copies of a
// process make, as of a virtual machine that was cloned: the copies have the same random numbers, but no two of them read the same time.
func NewID() string {
	var id [secretBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	low := binary.BigEndian.Uint64(id[8:]) ^ uint64(time.Now().UnixNano())
	binary.BigEndian.PutUint64(id[8:], low)
	return encoding.EncodeToString(id[:])
}
