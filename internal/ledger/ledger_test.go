// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// What a job's user still has open or linked, and what he has put in its place.
func TestAPageOfAJobThatIsOverIsEmptyAndNotTheUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if err := Create(path, 12, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	Empty(path + ".link")
	Empty(path + ".none")
	if info, err := os.Stat(path); err != nil || info.Size() != Bytes() || info.Mode() != 0o600 {
		t.Errorf("through a link: %v, %v", info, err)
	}
	if err := os.Chown(path, 1, 1); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	Empty(path)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Size != 0 || st.Mode&0o777 != 0 || int(st.Uid) != os.Geteuid() {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestPagesAreClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes what nobody holds any more
	path := filepath.Join(t.TempDir(), "page")
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := open()
	for range 10 {
		if err := Create(path, 12, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, 12, Bounds{}); err != nil {
			t.Fatal(err)
		}
		Empty(path)
		if _, err := Read(path, 12, Bounds{}); os.Geteuid() == 0 && !errors.Is(err, ErrLayout) {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

func TestNewLedgerIsEmptyAndTheJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), LedgerFile)
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if os.Getuid() == 0 {
		uid, gid = 65534, 65533
	}
	if err := Create(path, 12, 2, uid, gid); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 || st.Size() != int64(binary.Size(ledgerPage{})) {
		t.Errorf("mode %v, %d bytes", st.Mode(), st.Size())
	}
	if of := st.Sys().(*syscall.Stat_t); of.Uid != uid || of.Gid != gid {
		t.Errorf("it is of uid %d and gid %d, want %d and %d", of.Uid, of.Gid, uid, gid)
	}
	// Tasks write to it through a mapping, where a full file system would be a SIGBUS.
	if blocks := st.Sys().(*syscall.Stat_t).Blocks; blocks*512 < st.Size() {
		t.Errorf("%d of %d bytes have room on the file system", blocks*512, st.Size())
	}
	got, err := Read(path, 12, Bounds{Bytes: []uint64{3 << 30, 3 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Usage{Devices: make([]DeviceUsage, 2)}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Read(path, 13, Bounds{}); !errors.Is(err, ErrLayout) {
		t.Errorf("another job's ledger: %v", err)
	}
}

func TestCreateKeepsARunningJobsLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), LedgerFile)
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if err := Create(path, 12, 1, uid, gid); err != nil {
		t.Fatal(err)
	}
	poke(t, path, func(head *ledgerHead) { head.PeakBytes[0] = 77 })
	if err := Create(path, 12, 1, uid, gid); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path, 12, Bounds{Bytes: []uint64{100}}); err != nil || got.Devices[0].PeakBytes != 77 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// poke changes a ledger as its owner may.
func poke(t *testing.T, path string, change func(*ledgerHead)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var head ledgerHead
	if _, err := binary.Decode(data, binary.LittleEndian, &head); err != nil {
		t.Fatal(err)
	}
	change(&head)
	if data, err = binary.Append(nil, binary.LittleEndian, head); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
}

func TestWhatALedgerClaimsIsBroughtIntoBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), LedgerFile)
	if err := Create(path, 12, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	poke(t, path, func(head *ledgerHead) {
		head.DeviceCount = math.MaxUint32
		head.UsedBytes[0], head.PeakBytes[0], head.Refusals[0] = 50, 40, math.MaxUint64
		head.UsedBytes[1], head.PeakBytes[1] = 0, math.MaxUint64
		head.Step[3] = ledgerStep{InUse: 9, StepID: 4}
		head.Step[3].PeakBytes[0] = math.MaxUint64
	})
	want := Usage{
		Devices: []DeviceUsage{{UsedBytes: 50, PeakBytes: 50, Refusals: maxCount}, {PeakBytes: 200}},
		Steps:   []StepUsage{{Step: 4, Devices: []DeviceUsage{{PeakBytes: 100}, {}}}},
	}
	got, err := Read(path, 12, Bounds{Bytes: []uint64{100, 200}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	devices, err := ReadDevices(path, 12, Bounds{Bytes: []uint64{100, 200}})
	if diff := cmp.Diff(want.Devices, devices); diff != "" || err != nil {
		t.Errorf("without steps: %v, %s", err, diff)
	}
	if _, err := ReadDevices(path, 13, Bounds{}); !errors.Is(err, ErrLayout) {
		t.Errorf("another job's, without steps: %v", err)
	}
	if got, err := Read(path, 12, Bounds{Bytes: make([]uint64, 1000)}); err != nil || len(got.Devices) != MaxDevices {
		t.Errorf("%d devices, %v", len(got.Devices), err)
	}
}

// A user's lease keeps everybody else from opening his page (fcntl(2)). That is his doing, and no failure of the node's.
func TestALeasedLedgerIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if err := Create(path, 12, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	users, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close()
	signal.Ignore(unix.SIGIO)
	defer signal.Reset(unix.SIGIO)
	if _, err := unix.FcntlInt(users.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("this file system has no leases: ", err)
	}
	if _, err := ReadSlots(path, 12, 1); !errors.Is(err, ErrLayout) {
		t.Error(err)
	}
}

func TestHostileLedgersAreErrors(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(link, 12, Bounds{}); err == nil {
		t.Error("a link was followed")
	}
	if _, err := Read(dir, 12, Bounds{}); !errors.Is(err, ErrLayout) {
		t.Errorf("a folder: %v", err)
	}
	for name, size := range map[string]int64{"empty": 0, "short": 70, "huge hole": 1 << 40} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Logf("%s: %v", name, err) // not every file system has holes of a TiB
			continue
		}
		if _, err := Read(path, 12, Bounds{}); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeLedger(f *testing.F) {
	good, err := binary.Append(nil, binary.LittleEndian, ledgerHead{ledgerTotals: ledgerTotals{Magic: LedgerMagic, LayoutVersion: LayoutVersion, JobID: 12}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:64])
	f.Add([]byte{})
	bounds := Bounds{Bytes: []uint64{100, 200}}
	f.Fuzz(func(t *testing.T, data []byte) {
		usage, err := decode(data, 12, bounds, nil)
		if err != nil {
			return
		}
		for _, devices := range append([][]DeviceUsage{usage.Devices}, stepDevices(usage)...) {
			for i, d := range devices {
				if d.PeakBytes > bounds.Bytes[i] || d.UsedBytes > d.PeakBytes || d.Refusals > maxCount {
					t.Errorf("device %d claims %+v", i, d)
				}
			}
		}
	})
}

func stepDevices(usage Usage) (all [][]DeviceUsage) {
	for _, s := range usage.Steps {
		all = append(all, s.Devices)
	}
	return all
}
