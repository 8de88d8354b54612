// Package files replaces files as a whole, and locks them between processes.
package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CheckWritable finds out beforehand whether a file can be written at path.
func CheckWritable(flag, path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s %s: this is no file that could be replaced; name another", flag, path)
	}
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("%s %s: there is no folder %s; make it first, or name another file", flag, path, folder)
	}
	probe, err := os.CreateTemp(folder, ".election-cli-*")
	if err != nil {
		return fmt.Errorf("%s %s: the folder cannot be written to: %w", flag, path, err)
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

// Replace replaces the file at path by what write writes, or leaves it as it was.
func Replace(path string, write func(io.Writer) error) (err error) {
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
	if err := f.Chmod(0o644); err != nil { // temporary files are private
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
