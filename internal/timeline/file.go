// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// File is the timeline of a run. It takes no lock: samplers at work at once lose looks to each other, and what is read stays whole. The file is root's; the job's user may read it.
type File struct {
	path  string
	run   Run
	uid   uint32
	head  head
	count int   // of lines
	at    int64 // where in the file the newest look begins
	end   int64 // and where it ends
	last  *Look // the newest; nil: none
	prior *Look // the one before it
}

// Open reads as much of a file as a sampler has to know. One that is not there, or of an earlier run, is empty.
func Open(path string, run Run, uid uint32) (*File, error) {
	f := &File{path: path, run: run, uid: uid}
	err := trusted.Look(path, maxBytes, f.take)
	if isNone(err) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open timeline: %w", err)
	}
	return f, nil
}

func (f *File) take(data []byte) error {
	found, err := linesOf(data, f.path, f.run)
	if err != nil {
		return err
	}
	f.head, f.end, f.count = found.head, found.begin+int64(len(found.text)), bytes.Count(found.text, []byte("\n"))
	for end := len(found.text); end > 0 && f.prior == nil; {
		begin := bytes.LastIndexByte(found.text[:end-1], '\n') + 1
		look, ok := parseLook(found.text[begin:end], f.run.Slices)
		switch {
		case ok && f.last == nil:
			f.last, f.at = &look, found.begin+int64(begin)
		case ok:
			f.prior = &look
		}
		end = begin
	}
	return nil
}

// Last is the newest look, if there is one.
func (f *File) Last() (Look, bool) {
	if f.last == nil {
		return Look{}, false
	}
	return *f.last, true
}

// Add writes one more look. The newest is written over for as long as it is nearer to the one before it than looks are to be apart.
func (f *File) Add(look Look) error {
	switch {
	case len(look.Slices) != f.run.Slices:
		return fmt.Errorf("write timeline %s: a look at %d slices, of %d", f.path, len(look.Slices), f.run.Slices)
	case f.last == nil:
		return f.rewrite(everyS, []Look{look})
	case f.prior != nil && f.last.AtUnixS-f.prior.AtUnixS < f.head.EveryS-slackS:
		return f.put(f.at, merge(*f.last, look))
	case f.count >= maxKept:
		all, err := Read(f.path, f.run)
		if err != nil {
			return fmt.Errorf("write timeline: %w", err)
		}
		return f.rewrite(f.head.EveryS*2, append(fold(all.looks), look))
	}
	return f.put(f.end, look)
}

// put writes a line at a place of the text, behind which nothing stays. It is one write, so that whoever dies, dies before or after it.
func (f *File) put(at int64, look Look) error {
	line, err := json.Marshal(look)
	if err != nil {
		return fmt.Errorf("write timeline %s: %w", f.path, err)
	}
	fd, err := unix.Open(f.path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("write timeline: %w", &os.PathError{Op: "open", Path: f.path, Err: err})
	}
	defer unix.Close(fd)
	if err := f.share(fd); err != nil {
		return err
	}
	line = append(line, '\n')
	if n, err := unix.Pwrite(fd, line, at); err != nil {
		return fmt.Errorf("write timeline: %w", &os.PathError{Op: "write", Path: f.path, Err: err})
	} else if n < len(line) {
		return fmt.Errorf("write timeline: %w", &os.PathError{Op: "write", Path: f.path, Err: io.ErrShortWrite})
	}
	if err := unix.Ftruncate(fd, at+int64(len(line))); err != nil {
		return fmt.Errorf("write timeline: %w", &os.PathError{Op: "truncate", Path: f.path, Err: err})
	}
	return nil
}

// rewrite replaces the file in one step.
func (f *File) rewrite(every int64, looks []Look) error {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	if err := lines.Encode(head{version, f.run.Job, f.run.Restart, f.run.Slices, every}); err != nil {
		return fmt.Errorf("write timeline %s: %w", f.path, err)
	}
	for _, look := range looks {
		if err := lines.Encode(look); err != nil {
			return fmt.Errorf("write timeline %s: %w", f.path, err)
		}
	}
	if err := trusted.WriteFile(f.path, out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("write timeline: %w", &os.PathError{Op: "open", Path: f.path, Err: err})
	}
	defer unix.Close(fd)
	return f.share(fd)
}

// share lets the job's user read the file, and nobody else but its owner. It takes no capability: an owner may set the list of who may read (acl(5)).
// A file system without such lists leaves the file to its owner.
func (f *File) share(fd int) error {
	err := unix.Fsetxattr(fd, "system.posix_acl_access", readers(f.uid), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = unix.Fchmod(fd, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write timeline: let uid %d read it: %w", f.uid, &os.PathError{Op: "fsetxattr", Path: f.path, Err: err})
	}
	return nil
}

// readers is a list that lets the owner read and write, one user read, and nobody else anything: linux/posix_acl_xattr.h.
func readers(uid uint32) []byte {
	const (
		revision = 2
		read     = 4
		write    = 2
		noID     = math.MaxUint32
	)
	list := binary.LittleEndian.AppendUint32(nil, revision)
	for _, e := range []struct {
		tag, may uint16
		id       uint32
	}{{0x01, read | write, noID}, {0x02, read, uid}, {0x04, 0, noID}, {0x10, read, noID}, {0x20, 0, noID}} { // owner, a user, the group, most of both, others
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.may)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	return list
}
