// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package trusted reads and writes files that root may act upon: regular, reached through no link at the end
// of the path, owned by root (or by the caller's user), writable by no other user, and of bounded size.
package trusted

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// ErrUntrusted is wrapped by every refusal of a file that exists.
var ErrUntrusted = errors.New("file is not trusted")

// ReadFile returns the content of a trusted file of at most maxBytes. A missing file is fs.ErrNotExist.
func ReadFile(path string, maxBytes int64) ([]byte, error) { return readInto(nil, path, maxBytes) }

// buffers are for Look.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Look is ReadFile for a caller that keeps nothing of the content beyond the call of look. So many files need the memory of one.
func Look(path string, maxBytes int64, look func(content []byte) error) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	content, err := readInto(*buffer, path, maxBytes)
	if err != nil {
		return err
	}
	*buffer = content
	return look(content)
}

func readInto(buffer []byte, path string, maxBytes int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("read %s: %w: it is a symbolic link", path, ErrUntrusted)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return content(fd, buffer, path, maxBytes)
}

// ReadForeign is ReadFile of a file of such a size in a tree that its user may have made, as another process's root
// folder. He can put a device of the node there, or a file of the kernel's, which have no size or that of a page of memory, and opening or
// reading some of them does things: so nothing else is opened at all.
func ReadForeign(path string, least, most int64) ([]byte, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(at)
	is, err := check(at, path)
	if err != nil {
		return nil, err
	}
	if is < least || is > most {
		return nil, fmt.Errorf("read %s: %w: it has %d bytes, not %d to %d", path, ErrUntrusted, is, least, most)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return content(fd, nil, path, most)
}

// check says how large a trusted file is.
func check(fd int, path string) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, fmt.Errorf("read %s: %w: it is not a regular file", path, ErrUntrusted)
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
		return 0, fmt.Errorf("read %s: %w: its owner is uid %d", path, ErrUntrusted, st.Uid)
	}
	if st.Mode&0o022 != 0 {
		return 0, fmt.Errorf("read %s: %w: its mode %#o lets others write", path, ErrUntrusted, st.Mode&0o7777)
	}
	return st.Size, nil
}

// content takes over the descriptor. It reads without package os, whose poller would have to be told of every file.
func content(fd int, buffer []byte, path string, maxBytes int64) ([]byte, error) {
	defer unix.Close(fd)
	size, err := check(fd, path)
	if err != nil {
		return nil, err
	}
	content := slices.Grow(buffer[:0], int(min(size, maxBytes))+bytes.MinRead) // so it need not grow again
	for {
		content = slices.Grow(content, 1)
		n, err := unix.Read(fd, content[len(content):cap(content)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		content = content[:len(content)+n]
		if int64(len(content)) > maxBytes {
			return nil, fmt.Errorf("read %s: %w: it is larger than %d bytes", path, ErrUntrusted, maxBytes)
		}
		if n == 0 {
			return content, nil
		}
	}
}

// Temporaries are what killed writers of a folder's files have left there: regular files of who runs this that isOld says are old, and of
// whose target isTarget says that WriteFile writes it.
func Temporaries(folder string, isOld func(time.Time) bool, isTarget func(name string) bool) (paths []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		// renameio's: a point, the name, and a random number.
		hidden, isHidden := strings.CutPrefix(entry.Name(), ".")
		target := strings.TrimRight(hidden, "0123456789")
		if !isHidden || target == hidden || !isTarget(target) {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || !isOld(info.ModTime()) {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			paths = append(paths, filepath.Join(folder, entry.Name()))
		}
	}
	return paths
}

// WriteFile replaces a file in one step by one of this mode, whatever stood there and whatever the umask is.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	// Not renameio.WriteFile, which takes over the mode of what it replaces; and not through TMPDIR, which
	// may be a folder of everybody's.
	pending, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer pending.Cleanup()
	if _, err := pending.Write(data); err != nil {
		return err
	}
	return pending.CloseAtomicallyReplace()
}
