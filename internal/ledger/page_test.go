// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func TestMain(m *testing.M) {
	privatemounts.Enter()
	os.Exit(m.Run())
}

// mapped is a page as a process of a job has it.
func mapped(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(data) })
	return data
}

// A page with holes would kill who has it mapped.
func TestAPageForWhichThereIsNoRoomIsNotMade(t *testing.T) {
	dir := privatemounts.Full(t, nil)
	path := filepath.Join(dir, "page")
	for name, write := range map[string]func() error{
		"limits": func() error { return WriteLimits(path, Limits{Job: 12}) },
		"ledger": func() error { return Create(path, 12, 1, 0, 0) },
		"groups": func() error { return CreateGroups(path, 12, 0, 0) },
		"time":   func() error { return CreateTime(path, 12, 1) },
	} {
		if err := write(); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: there is %v, %v", name, left, err)
		}
	}
}
