// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func newTime(t *testing.T, devices int) (string, *TimePage) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "time")
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	if err := CreateTime(path, 12, devices); err != nil {
		t.Fatal(err)
	}
	page, err := OpenTime(path, 12)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { page.Close() })
	return path, page
}

func wantTime(t *testing.T, path string, want []TimeDevice) {
	t.Helper()
	got, err := ReadTime(path, 12)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTimeIsRootsAndReadByAll(t *testing.T) {
	path, page := newTime(t, 2)
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o644 || st.Size() != TimeBytes() {
		t.Errorf("%v, %v", st, err)
	}
	wantTime(t, path, make([]TimeDevice, 2))
	want := []TimeDevice{{BusyNs: 1, UnknownNs: 2, LookedNs: 3, CreditNs: -4, SliceUs: 5, Percent: 6, Frozen: 7, Flags: TimeFrozen, Killed: 8, Verdict: 9, CreditAtNs: 10}, {BusyNs: 9}}
	if err := page.Put(append(want, TimeDevice{BusyNs: 10})); err != nil { // for the third there is no room
		t.Fatal(err)
	}
	wantTime(t, path, want)
	if err := page.Put([]TimeDevice{{BusyNs: 11}}); err != nil { // of the second nothing was seen
		t.Fatal(err)
	}
	wantTime(t, path, []TimeDevice{{BusyNs: 11}, want[1]})
	again, err := OpenTime(path, 12)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if diff := cmp.Diff([]TimeDevice{{BusyNs: 11}, want[1]}, again.Devices()); diff != "" {
		t.Error(diff)
	}
	if err := CreateTime(path, 12, 2); err != nil {
		t.Error(err)
	}
	wantTime(t, path, []TimeDevice{{BusyNs: 11}, want[1]})
}

func TestTimeOfAKilledWriterIsWrittenAgain(t *testing.T) {
	path, page := newTime(t, 1)
	crashpoint.Set(func(name string) {
		if name == "ledger/time-begun" {
			panic(name)
		}
	})
	func() {
		defer func() { recover() }()
		page.Put([]TimeDevice{{BusyNs: 1}})
	}()
	crashpoint.Set(nil)
	if torn, err := readTime(path, 12); err != nil || torn.Sequence%2 != 1 {
		t.Fatalf("the writer did not die while it wrote: %v", err)
	}
	wantTime(t, path, make([]TimeDevice, 1))
	again, err := OpenTime(path, 12)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Put([]TimeDevice{{BusyNs: 2}}); err != nil {
		t.Fatal(err)
	}
	if whole, err := readTime(path, 12); err != nil || whole.Sequence%2 != 0 || whole.Device[0].BusyNs != 2 {
		t.Errorf("%+v, %v", whole, err)
	}
}

// Who writes when the job ends goes on, and nobody reads what that was.
func TestTimeOfAJobThatIsOver(t *testing.T) {
	path, page := newTime(t, 1)
	Empty(path)
	if err := page.Put([]TimeDevice{{BusyNs: 1}}); err != nil {
		t.Error(err)
	}
	if _, err := ReadTime(path, 12); err == nil {
		t.Error("it is believed")
	}
}

func TestTimeThatIsNoneIsNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(path string) error
		want  error
	}{
		"of another job": {func(path string) error { return errors.Join(os.Remove(path), CreateTime(path, 13, 1)) }, ErrLayout},
		"cut":            {func(path string) error { return os.Truncate(path, 100) }, ErrLayout},
		"garbage":        {func(path string) error { return os.WriteFile(path, make([]byte, TimeBytes()), 0o644) }, ErrLayout},
		"writable":       {func(path string) error { return os.Chmod(path, 0o666) }, trusted.ErrUntrusted},
		"not there":      {os.Remove, fs.ErrNotExist},
	} {
		path, _ := newTime(t, 1)
		if err := tc.spoil(path); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTime(path, 12); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if _, err := OpenTime(path, 12); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if err := CreateTime(filepath.Join(t.TempDir(), "time"), 12, MaxDevices+1); err == nil {
		t.Error("more devices than have room")
	}
}
