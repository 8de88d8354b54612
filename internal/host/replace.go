// Package host has what the processes of one host share: files that are replaced as a whole, locks, temporary folders, TCP ports and a clock.
//
// A reader of a replaced file sees the old content or the new content, never a part of it. A lock ends with its process at the latest. A
// temporary folder does not outlive a killed process for long. A reserved port stays with its process while no server listens on it.
package host

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CheckWritable returns an error if [ReplaceFile] cannot write a file at path. The error names the flag or argument that the path comes from.
func CheckWritable(flag, path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s %s: this is not a regular file; give the path of a file", flag, path)
	}
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("%s %s: there is no folder %s; create it, or give another path", flag, path, folder)
	}
	probe, err := os.CreateTemp(folder, ".election-cli-*")
	if err != nil {
		return fmt.Errorf("%s %s: cannot write to the folder: %w", flag, path, err)
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

// ReplaceFile replaces the file at path with the output of write. If that fails, the file stays as it is. ReplaceFile does not sync the file
// to disk.
func ReplaceFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".election-cli-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil { // CreateTemp makes the file private
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
