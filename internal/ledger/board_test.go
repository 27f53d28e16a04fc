// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
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

func boardIn(t *testing.T, data []byte) boardPage {
	t.Helper()
	var page boardPage
	if _, err := binary.Decode(data, binary.LittleEndian, &page); err != nil {
		t.Fatal(err)
	}
	return page
}

func TestBoardIsChangedWhereProcessesSeeIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "GPU-a")
	first := []BoardSlice{{Job: 12, SMPercent: 30, UID: 1000}, {Job: 13, Device: 2, SMPercent: 70, Flags: Elastic, UID: 1001}}
	if err := WriteBoard(path, Board{Slices: first}); err != nil {
		t.Fatal(err)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", st.Mode())
	}
	seen := mapped(t, path)
	for _, want := range [][]BoardSlice{first, first[1:], nil, first} {
		before := boardIn(t, seen).Sequence
		was, err := ReadBoard(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteBoard(path, Board{Slices: want}); err != nil {
			t.Fatal(err)
		}
		got, err := ReadBoard(path)
		if err != nil || !cmp.Equal(Board{Slices: want}, got) {
			t.Errorf("got %v, %v", got, err)
		}
		page := boardIn(t, seen)
		if page.Count != uint32(len(want)) || len(want) > 0 && page.Slice[0].JobID != want[0].Job {
			t.Errorf("who has it mapped sees %d slices, want %v", page.Count, want)
		}
		if page.Sequence%2 != 0 || (page.Sequence == before) != cmp.Equal(was.Slices, want) {
			t.Errorf("sequence was %d, is %d", before, page.Sequence)
		}
	}
}

// Who keeps the shares changes with the configuration, under the same slices.
func TestABoardSaysWhoKeepsTheShares(t *testing.T) {
	path := filepath.Join(t.TempDir(), "GPU-a")
	onGPU := []BoardSlice{{Job: 12, SMPercent: 30}}
	if err := WriteBoard(path, Board{Slices: onGPU}); err != nil {
		t.Fatal(err)
	}
	seen := mapped(t, path)
	for _, keeper := range []Keeper{KeptByVgpud, KeptByVgpud, KeptByLibrary} {
		want := Board{KeptBy: keeper, Slices: onGPU}
		if err := WriteBoard(path, want); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadBoard(path); err != nil || !cmp.Equal(want, got) {
			t.Errorf("got %+v, %v", got, err)
		}
		if page := boardIn(t, seen); page.KeptBy != uint32(keeper) || page.Count != 1 {
			t.Errorf("who has it mapped sees %d", page.KeptBy)
		}
	}
}

// A reader that goes by the sequence counter never takes a board for whole that is half of two.
func TestBoardIsNeverSeenHalfWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "GPU-a")
	of := func(job uint32) []BoardSlice {
		onGPU := make([]BoardSlice, 1+job%MaxBoardSlices)
		for i := range onGPU {
			onGPU[i] = BoardSlice{Job: job, Device: job, SMPercent: job, UID: job}
		}
		return onGPU
	}
	if err := WriteBoard(path, Board{Slices: of(1)}); err != nil {
		t.Fatal(err)
	}
	page := (*boardPage)(unsafe.Pointer(unsafe.SliceData(mapped(t, path))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for job := range uint32(2000) {
			if err := WriteBoard(path, Board{Slices: of(job + 2)}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	whole := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		before := atomic.LoadUint32(&page.Sequence)
		seen := *page
		if before%2 != 0 || atomic.LoadUint32(&page.Sequence) != before {
			continue
		}
		whole++
		job := seen.Slice[0].JobID
		if int(seen.Count) != len(of(job)) {
			t.Fatalf("job %d stands on a board of %d slices", job, seen.Count)
		}
		for _, s := range seen.Slice[:seen.Count] {
			if s != (boardSlice{JobID: job, Device: job, SMPercent: job, UID: job}) {
				t.Fatalf("beside job %d stands %+v", job, s)
			}
		}
	}
	if whole == 0 {
		t.Error("no board was seen")
	}
}

func TestBoardOfAKilledWriterIsWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "GPU-a")
	if err := WriteBoard(path, Board{Slices: []BoardSlice{{Job: 12, SMPercent: 30}}}); err != nil {
		t.Fatal(err)
	}
	died := false
	crashpoint.Set(func(name string) {
		if name == "ledger/board-begun" {
			died = true
			panic(name)
		}
	})
	func() {
		defer func() { recover() }()
		WriteBoard(path, Board{Slices: []BoardSlice{{Job: 13, SMPercent: 10}}})
	}()
	crashpoint.Set(nil)
	if page, err := readBoard(path); !died || err != nil || page.Sequence%2 != 1 {
		t.Fatalf("the writer did not die while it wrote: %v, %v", died, err)
	}
	// Even where nothing but the counter is wrong.
	if err := WriteBoard(path, Board{Slices: []BoardSlice{{Job: 12, SMPercent: 30}}}); err != nil {
		t.Fatal(err)
	}
	if page, err := readBoard(path); err != nil || page.Sequence%2 != 0 || page.Count != 1 || page.Slice[0].JobID != 12 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestBoardThatIsNoneIsReplaced(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"cut":      func(path string) error { return os.Truncate(path, 100) },
		"foreign":  func(path string) error { return os.WriteFile(path, make([]byte, binary.Size(boardPage{})), 0o644) },
		"writable": func(path string) error { return os.Chmod(path, 0o666) },
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+"-elsewhere"), os.Symlink(path+"-elsewhere", path))
		},
	} {
		path := filepath.Join(t.TempDir(), "GPU-a")
		if err := WriteBoard(path, Board{}); err != nil {
			t.Fatal(err)
		}
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBoard(path); err == nil {
			t.Errorf("%s: it is believed", name)
		}
		if err := WriteBoard(path, Board{Slices: []BoardSlice{{Job: 12}}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := ReadBoard(path); err != nil || len(got.Slices) != 1 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestBoardTakesWhatItHasRoomFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "GPU-a")
	many := make([]BoardSlice, MaxBoardSlices+3)
	for i := range many {
		many[i].Job = uint32(i + 1)
	}
	for range 2 { // also when nothing changes
		if err := WriteBoard(path, Board{Slices: many}); !errors.Is(err, ErrBoardFull) {
			t.Errorf("got %v", err)
		}
		if got, err := ReadBoard(path); err != nil || len(got.Slices) != MaxBoardSlices {
			t.Errorf("%d slices, %v", len(got.Slices), err)
		}
	}
}

// Half a board, or a page with holes, would stop or kill who has it mapped.
func TestAPageForWhichThereIsNoRoomIsNotMade(t *testing.T) {
	dir := privatemounts.Full(t, nil)
	path := filepath.Join(dir, "page")
	for name, write := range map[string]func() error{
		"board":  func() error { return WriteBoard(path, Board{Slices: []BoardSlice{{Job: 12}}}) },
		"limits": func() error { return WriteLimits(path, Limits{Job: 12}) },
		"ledger": func() error { return Create(path, 12, 1, 0, 0) },
		"claims": func() error { return CreateClaims(path, 12, 1, 0, 0) },
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

func TestClaimsThatAreNoneAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims")
	uid := uint32(os.Getuid())
	for name, tc := range map[string]struct {
		spoil func() error
		want  error
	}{
		"whole":       {func() error { return CreateClaims(path, 12, 1, uid, uid) }, nil},
		"the user's":  {func() error { uid = 65534; return os.Chown(path, 65534, 65534) }, nil},
		"of another":  {func() error { uid++; return os.Chown(path, int(uid+1), 0) }, ErrLayout},
		"cut":         {func() error { return os.Truncate(path, 10) }, ErrLayout},
		"shut":        {func() error { return os.Chmod(path, 0o600) }, ErrLayout},
		"not there":   {func() error { return os.Remove(path) }, fs.ErrNotExist},
		"a folder":    {func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o644)) }, ErrLayout},
		"a link away": {func() error { return errors.Join(os.Rename(path, path+"-"), os.Symlink(path+"-", path)) }, ErrLayout},
	} {
		uid = uint32(os.Getuid())
		if err := errors.Join(os.RemoveAll(path), CreateClaims(path, 12, 1, uid, uid), tc.spoil()); errors.Is(err, fs.ErrPermission) {
			continue // only root can give a file away
		} else if err != nil {
			t.Fatal(err)
		}
		if err := CheckClaims(path, uid); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestNewClaimsAreEmptyAndTheJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "12")
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if uid == 0 {
		uid, gid = 65534, 65534
	}
	before := unix.Umask(0o077)
	err := CreateClaims(path, 12, 2, uid, gid)
	unix.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var page claimsPage
	if _, err := binary.Decode(data, binary.LittleEndian, &page); err != nil {
		t.Fatal(err)
	}
	want := claimsPage{Magic: claimsMagic, LayoutVersion: VgpudVersion, SizeBytes: uint32(len(data)), JobID: 12, DeviceCount: 2}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Error(diff)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != uid || st.Mode&0o777 != 0o644 {
		t.Errorf("uid %d, mode %o, %v", st.Uid, st.Mode, err)
	}
	if err := os.WriteFile(path, []byte("a running job's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CreateClaims(path, 12, 2, uid, gid); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "a running job's" {
		t.Errorf("it was changed: %q, %v", data, err)
	}
	if err := CreateClaims(path+"0", 12, MaxDevices+1, uid, gid); err == nil {
		t.Error("more devices than have room")
	}
}
