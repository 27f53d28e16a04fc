// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package logging makes the logger of a binary from its configuration.
package logging

import (
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// New returns the logger of one binary and what closes its file. It always returns a usable
// logger: when the file cannot be opened, one to stderr together with the reason.
//
// Without a configured level a file gets every decision (info) and stderr only what is wrong
// (warn), so that a prolog on its happy path prints nothing.
func New(name string, log config.Log) (hclog.Logger, io.Closer, error) {
	var out io.WriteCloser = keepOpen{os.Stderr}
	level := hclog.Warn
	var openErr error
	if log.File != "" {
		file, err := openAppend(log.File)
		if err != nil {
			openErr = err
		} else {
			out, level = file, hclog.Info
		}
	}
	if configured := hclog.LevelFromString(log.Level); configured != hclog.NoLevel {
		level = configured
	}
	logger := hclog.New(&hclog.LoggerOptions{
		Name:       name,
		Level:      level,
		Output:     printable{out},
		JSONFormat: log.Format == config.FormatJSON,
		// Timestamps stay on: slurmd's log drops a prolog's stderr below debug2, so the file is read alone.
		TimeFormat: "2006-01-02T15:04:05.000Z07:00",
	})
	return logger, out, openErr
}

// openAppend opens a log file that several processes append to. A symbolic link is refused: root
// writes here, and the folder of a log file is often another user's.
func openAppend(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, &os.PathError{Op: "open log file", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "stat log file", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, fmt.Errorf("open log file %s: it is not a regular file", path)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// printable keeps what others say in a log line from commanding the terminal of who reads it.
type printable struct{ io.Writer }

func (p printable) Write(line []byte) (int, error) {
	if _, err := io.WriteString(p.Writer, slurm.PrintableLines(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
