// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// watcher has the kernel say when the state file is replaced, and when a groups page is written to (inotify(7)). Of all else that happens in the
// folder it asks for as little as can be: fsnotify, which asks for everything, took 2.5 times the processor time for each file written there.
type watcher struct {
	run     rundir.Dir
	file    *os.File
	changed chan struct{}
	state   int            // watch of the state file's folder
	groups  map[uint32]int // of each job's page
}

// WatchRun watches a run directory.
func WatchRun(run rundir.Dir) (Changes, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("begin to watch: %w", err)
	}
	w := &watcher{run: run, file: os.NewFile(uintptr(fd), "inotify"), changed: make(chan struct{}, 1), groups: map[uint32]int{}}
	if w.state, err = unix.InotifyAddWatch(fd, string(run), unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
		w.file.Close()
		return nil, fmt.Errorf("watch %s: %w", run, err)
	}
	go w.read()
	return w, nil
}

func (w *watcher) C() <-chan struct{} { return w.changed }

func (w *watcher) Close() { w.file.Close() }

// Watch follows the pages of these jobs, and of no others.
func (w *watcher) Watch(jobs []uint32) (err error) {
	conn, connErr := w.file.SyscallConn()
	if connErr != nil {
		return connErr
	}
	controlErr := conn.Control(func(fd uintptr) {
		for job, watch := range w.groups {
			if !slices.Contains(jobs, job) {
				_, _ = unix.InotifyRmWatch(int(fd), uint32(watch)) // it went with its file
				delete(w.groups, job)
			}
		}
		for _, job := range jobs {
			path := w.run.Groups(job)
			watch, addErr := unix.InotifyAddWatch(int(fd), path, unix.IN_MODIFY|unix.IN_DONT_FOLLOW)
			if errors.Is(addErr, unix.ENOENT) {
				addErr = nil // the scout comes again
			} else if addErr != nil {
				err = errors.Join(err, fmt.Errorf("watch %s: %w", path, addErr))
			}
			if before, known := w.groups[job]; addErr == nil && watch > 0 && (!known || before != watch) {
				w.groups[job] = watch
				w.say() // what was written before
			}
		}
	})
	return errors.Join(err, controlErr)
}

func (w *watcher) say() {
	select {
	case w.changed <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// read drops what the kernel says of other files than the state's: prologs and samplers write there too.
func (w *watcher) read() {
	buffer := make([]byte, 64<<10)
	name := filepath.Base(w.run.State())
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		for events := buffer[:n]; len(events) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(unsafe.SliceData(events)))
			length := unix.SizeofInotifyEvent + int(event.Len)
			if length > len(events) {
				break
			}
			of := strings.TrimRight(string(events[unix.SizeofInotifyEvent:length]), "\x00")
			gone := event.Mask&unix.IN_IGNORED != 0 // a watch, with its file or by our own wish
			if int(event.Wd) != w.state && !gone || of == name || event.Mask&unix.IN_Q_OVERFLOW != 0 {
				w.say()
			}
			events = events[length:]
		}
		time.Sleep(scoutEach) // a user may write ten thousand times a second; the next look is no sooner
	}
}
