package host

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestALockHasOneHolderAndItsFileIsRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "lock")
	release, err := LockFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = LockFile(path)
	g.Expect(err).To(MatchError(ErrLocked))
	release()
	again, err := LockFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	again()
	g.Expect(path).NotTo(BeAnExistingFile())
	g.Expect(os.WriteFile(path, []byte("precious"), 0o600)).To(Succeed())
	_, err = LockFile(path)
	g.Expect(err).To(MatchError(ContainSubstring("move the file away")))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("precious"))
}

func TestAFileIsReplacedAsAWholeOrStaysAsItIs(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "run.svg")
	g.Expect(CheckWritable("--svg", path)).To(Succeed())
	g.Expect(ReplaceFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "first")
		return err
	})).To(Succeed())
	g.Expect(ReplaceFile(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the sec")
		return errors.New("disk on fire")
	})).To(MatchError("disk on fire"))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("first"))
	g.Expect(os.ReadDir(folder)).To(HaveLen(1), "no temporary file is left")

	g.Expect(CheckWritable("--svg", folder)).To(MatchError(ContainSubstring("not a regular file")))
	g.Expect(CheckWritable("--svg", filepath.Join(folder, "missing", "run.svg"))).To(MatchError(ContainSubstring("there is no folder")))
}
