// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The kernel's protocol of file systems in user space, as far as one folder with one file takes it (linux/fuse.h). A structure's name there
// stands behind each.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opStatfs      = 17
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opInterrupt   = 36
	opDestroy     = 38
	opIoctl       = 39
	opBatchForget = 42

	notifyStore = 4
)

const (
	requestBytes = 64 // fuse_in_header is 40
	mostBytes    = 1 << 20
	fileBytes    = 1 << 30 // so much may be mapped
	rootNode     = 1
	fileName     = "nvidiactl"
	readers      = 2
)

var le = binary.LittleEndian

// request is what the kernel asks; fuse_in_header, and what follows it.
type request struct {
	op        uint32
	unique    uint64
	node      uint64
	uid, tid  uint32
	body      []byte
	connected *connection
}

// connection is one mount.
type connection struct {
	fd     int
	target string
}

// mount makes the file system of which this process is the server.
func mount(target string) (*connection, error) {
	// Of one who was killed: it answers nothing any more.
	for unix.Unmount(target, unix.MNT_DETACH) == nil {
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/fuse", Err: err}
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("simgpu-control", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mount a FUSE file system on %s: %w", target, err)
	}
	return &connection{fd: fd, target: target}, nil
}

func (c *connection) unmount() error { return unix.Unmount(c.target, unix.MNT_DETACH) }

// serve answers until the file system is unmounted.
func (c *connection) serve(handle func(*request)) error {
	ends := make(chan error, readers)
	for range readers {
		go func() { ends <- c.read(handle) }()
	}
	return <-ends
}

func (c *connection) read(handle func(*request)) error {
	buffer := make([]byte, mostBytes+requestBytes)
	for {
		n, err := unix.Read(c.fd, buffer)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil // unmounted
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // taken back before it was read
		case err != nil:
			return &os.PathError{Op: "read", Path: "/dev/fuse", Err: err}
		case n < 40:
			return fmt.Errorf("read /dev/fuse: %d bytes", n)
		}
		handle(&request{op: le.Uint32(buffer[4:]), unique: le.Uint64(buffer[8:]), node: le.Uint64(buffer[16:]),
			uid: le.Uint32(buffer[24:]), tid: le.Uint32(buffer[32:]), body: buffer[40:n], connected: c})
	}
}

// answer is what the kernel is given for a request; fuse_out_header.
func (q *request) answer(body []byte) { q.connected.send(0, q.unique, body) }

func (q *request) fail(errno unix.Errno) { q.connected.send(-int32(errno), q.unique, nil) }

func (c *connection) send(code int32, unique uint64, body []byte) {
	message := make([]byte, 16, 16+len(body))
	le.PutUint32(message, uint32(16+len(body)))
	le.PutUint32(message[4:], uint32(code))
	le.PutUint64(message[8:], unique)
	unix.Write(c.fd, append(message, body...)) // who asked may be gone
}

// store puts bytes into the pages of a file that the kernel has; fuse_notify_store_out.
func (c *connection) store(node uint64, offset int, data []byte) {
	for len(data) > 0 {
		part := data[:min(len(data), 1<<16)]
		body := make([]byte, 24, 24+len(part))
		le.PutUint64(body, node)
		le.PutUint64(body[8:], uint64(offset))
		le.PutUint32(body[16:], uint32(len(part)))
		c.send(notifyStore, 0, append(body, part...))
		offset, data = offset+len(part), data[len(part):]
	}
}

// attributes are those of the folder or of a file; fuse_attr.
func attributes(node uint64) []byte {
	b := make([]byte, 88)
	mode, size := uint32(unix.S_IFREG|0o666), uint64(fileBytes)
	if node == rootNode {
		mode, size = unix.S_IFDIR|0o755, 0
	}
	le.PutUint64(b, node)
	le.PutUint64(b[8:], size)
	le.PutUint32(b[60:], mode)
	le.PutUint32(b[64:], 1) // links
	le.PutUint32(b[80:], 4096)
	return b
}

const hour = 3600 // for which the kernel need not ask again

// entry is an answer to a look-up: a name that is not kept, so that each open file has an inode, and thereby pages, of its own; fuse_entry_out.
func entry(node uint64) []byte {
	b := make([]byte, 40)
	le.PutUint64(b, node)
	le.PutUint64(b[24:], hour)
	return append(b, attributes(node)...)
}

// gotAttributes is fuse_attr_out.
func gotAttributes(node uint64) []byte {
	b := make([]byte, 16)
	le.PutUint64(b, hour)
	return append(b, attributes(node)...)
}

// opened is fuse_open_out.
func opened(handle uint64) []byte {
	b := make([]byte, 16)
	le.PutUint64(b, handle)
	return b
}

// begun is fuse_init_out.
func begun() []byte {
	b := make([]byte, 64)
	le.PutUint32(b, 7)
	le.PutUint32(b[4:], 31)
	le.PutUint16(b[16:], 16) // requests in the background
	le.PutUint16(b[18:], 12)
	le.PutUint32(b[20:], 4096)
	le.PutUint32(b[24:], 1)
	return b
}

// listed is the folder; fuse_dirent.
func listed(offset uint64) []byte {
	if offset != 0 {
		return nil
	}
	b := make([]byte, 24, 40)
	le.PutUint64(b, 2)
	le.PutUint64(b[8:], 1)
	le.PutUint32(b[16:], uint32(len(fileName)))
	le.PutUint32(b[20:], unix.DT_REG)
	b = append(b, fileName...)
	return append(b, make([]byte, (8-len(b)%8)%8)...)
}

// answered is an ioctl's answer: its result and what it writes into its argument; fuse_ioctl_out.
func answered(result int32, argument []byte) []byte {
	b := make([]byte, 16)
	le.PutUint32(b, uint32(result))
	return append(b, argument...)
}
