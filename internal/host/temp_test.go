//go:build darwin || linux

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

// makeFolder makes a folder with a file in the folder for temporary files, and a lock file that nobody holds unless locked is false.
func makeFolder(g Gomega, name string, locked bool) string {
	path := filepath.Join(os.TempDir(), name)
	g.Expect(os.MkdirAll(filepath.Join(path, "jetstream"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(path, "jetstream", "data"), []byte("data"), 0o600)).To(Succeed())
	if locked {
		g.Expect(os.WriteFile(filepath.Join(path, LockName), nil, 0o600)).To(Succeed())
	}
	return path
}

func TestANewTemporaryFolderRemovesTheFoldersThatNobodyHolds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g := NewWithT(t)
	held, err := NewTemp(ServerPrefix)
	g.Expect(err).NotTo(HaveOccurred())
	defer held.Remove()
	kept, err := NewTemp(DrillPrefix)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(kept.Path, "history"), nil, 0o600)).To(Succeed())
	kept.Keep()
	abandoned := []string{makeFolder(g, "election-cli-1", true), makeFolder(g, "election-drill-22", true)}
	halfMade := filepath.Join(os.TempDir(), "election-cli-3")
	g.Expect(os.Mkdir(halfMade, 0o700)).To(Succeed())
	foreign := []string{
		makeFolder(g, "election-cli-4", false), makeFolder(g, "election-cli-test-5", true), makeFolder(g, "election-cli-6x", true),
		makeFolder(g, "other-7", true),
	}
	elsewhere := makeFolder(g, "elsewhere", true)
	g.Expect(os.Symlink(elsewhere, filepath.Join(os.TempDir(), "election-cli-8"))).To(Succeed())
	linked := makeFolder(g, "election-cli-9", false)
	g.Expect(os.Symlink(filepath.Join(elsewhere, LockName), filepath.Join(linked, LockName))).To(Succeed())
	used := makeFolder(g, "election-cli-10", true)
	g.Expect(os.WriteFile(filepath.Join(used, LockName), []byte("precious"), 0o600)).To(Succeed())

	next, err := NewTemp(ServerPrefix)
	g.Expect(err).NotTo(HaveOccurred())
	for _, path := range append(abandoned, halfMade) {
		g.Expect(path).NotTo(BeAnExistingFile())
	}
	for _, path := range append(foreign, held.Path, kept.Path, next.Path, elsewhere, linked, used) {
		g.Expect(path).To(BeADirectory())
	}
	g.Expect(filepath.Join(elsewhere, "jetstream", "data")).To(BeARegularFile())
	g.Expect(filepath.Join(kept.Path, "history")).To(BeARegularFile())
	next.Remove()
	g.Expect(next.Path).NotTo(BeAnExistingFile())
}

func TestAFolderOfAnotherUserIsNotRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a folder of another user")
	}
	t.Setenv("TMPDIR", t.TempDir())
	g := NewWithT(t)
	folder, file := makeFolder(g, "election-cli-1", true), makeFolder(g, "election-cli-2", true)
	const nobody = 65534
	g.Expect(os.Chown(folder, nobody, nobody)).To(Succeed())
	g.Expect(os.Chown(filepath.Join(file, LockName), nobody, nobody)).To(Succeed())
	next, err := NewTemp(ServerPrefix)
	g.Expect(err).NotTo(HaveOccurred())
	defer next.Remove()
	g.Expect(folder).To(BeADirectory())
	g.Expect(file).To(BeADirectory())
}

// TestTemporaryFoldersThatAreMadeAtOnceAreLeftAlone makes, keeps and removes folders while others look for abandoned ones.
func TestTemporaryFoldersThatAreMadeAtOnceAreLeftAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g := NewWithT(t)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var kept []string
	for i := range 8 {
		workers.Go(func() {
			for n := range 50 {
				f, err := NewTemp(ServerPrefix)
				if err != nil {
					t.Error(err)
					return
				}
				data := filepath.Join(f.Path, "data")
				if err := os.WriteFile(data, []byte(fmt.Sprint(i, n)), 0o600); err != nil {
					t.Error(err)
				}
				if text, err := os.ReadFile(data); err != nil || string(text) != fmt.Sprint(i, n) {
					t.Error("the data is gone:", err)
				}
				if n%10 != 0 {
					f.Remove()
					continue
				}
				f.Keep()
				mu.Lock()
				kept = append(kept, f.Path)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	last, err := NewTemp(ServerPrefix)
	g.Expect(err).NotTo(HaveOccurred())
	last.Remove()
	g.Expect(os.ReadDir(os.TempDir())).To(HaveLen(len(kept)))
	for _, path := range kept {
		g.Expect(filepath.Join(path, "data")).To(BeARegularFile())
	}
}
