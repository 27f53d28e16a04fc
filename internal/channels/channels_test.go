// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestChannelsAreDisabledByClientAndNumber(t *testing.T) {
	got, err := disabling(true, []Channel{{1, 2}, {3, 4}})
	if err != nil || got.disable != 1 || got.count != 2 || got.rewind != 0 || got.onlyScheduling != 0 ||
		!slices.Equal(got.clients[:3], []uint32{1, 3, 0}) || !slices.Equal(got.channels[:3], []uint32{2, 4, 0}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := disabling(false, make([]Channel, MostChannels)); err != nil || got.disable != 0 || got.count != 64 {
		t.Errorf("enabling: %+v, %v", got, err)
	}
	for _, n := range []int{0, MostChannels + 1, 1 << 20} {
		if _, err := disabling(true, make([]Channel, n)); err == nil {
			t.Errorf("%d channels went into one call", n)
		}
	}
}

func TestEachClientsChannelsStayTogether(t *testing.T) {
	got := byClient([]Channel{{7, 1}, {5, 2}, {7, 3}})
	if want := [][]Channel{{{7, 1}, {7, 3}}, {{5, 2}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhoNamesMuchThatIsNotThereIsNotTriedOn(t *testing.T) {
	all, tried := make([]Channel, MostChannels), 0
	for i := range all {
		all[i] = Channel{Client: 1, Handle: uint32(i)}
	}
	most := mostGone
	try := func(of func(Channel) error) ([]Channel, error) {
		tried = 0
		return disableEach(func(some ...Channel) (err error) {
			tried++
			for _, c := range some {
				err = errors.Join(err, of(c))
			}
			return err
		}, all, most)
	}
	if gone, err := try(func(Channel) error { return Status(0x57) }); err != nil || len(gone) != len(all) || tried != 1+mostGone {
		t.Errorf("none is there: %d gone after %d calls, %v", len(gone), tried, err)
	}
	notSupported := Status(0x56)
	if gone, err := try(func(Channel) error { return notSupported }); !errors.Is(err, notSupported) || gone != nil || tried != 1 {
		t.Errorf("refused: %d gone after %d calls, %v", len(gone), tried, err)
	}
	most = len(all)
	if gone, err := try(func(Channel) error { return Status(0x57) }); err != nil || len(gone) != len(all) || tried != 1+len(all) {
		t.Errorf("to be on, none is there: %d gone after %d calls, %v", len(gone), tried, err)
	}
	one := func(c Channel) error {
		if c.Handle == 40 {
			return Status(0x57)
		}
		return nil
	}
	if gone, err := try(one); err != nil || !slices.Equal(gone, all[40:41]) || tried != 1+len(all) {
		t.Errorf("one is not there: %v gone after %d calls, %v", gone, tried, err)
	}
}

func TestSlicesAreBounded(t *testing.T) {
	for _, slice := range []time.Duration{-1, 0, 999, longestSlice + 1} {
		if err := File(-1).SetTimeSlice(Group{}, slice); err == nil || errors.Is(err, unix.EBADF) {
			t.Errorf("a slice of %s came to the driver: %v", slice, err)
		}
	}
	if err := File(-1).SetTimeSlice(Group{}, longestSlice); !errors.Is(err, unix.EBADF) {
		t.Errorf("%v, want that the kernel refuses the descriptor", err)
	}
}

func TestWhatTheKernelRefusesIsAnError(t *testing.T) {
	if err := Control(-1, 1, 2, callTime, &timeParams{}); !errors.Is(err, unix.EBADF) {
		t.Errorf("a control call gave %v", err)
	}
	if object, err := alloc[struct{}](-1, 0, 0, classClient, nil); object != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("object %d, %v", object, err)
	}
	link := filepath.Join(t.TempDir(), "nvidiactl")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{"/dev/null": unix.ENOTTY, link: unix.ELOOP, "/nowhere": unix.ENOENT} {
		if _, err := Open(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestAStatusSaysWhetherHandlesAreWrong(t *testing.T) {
	for status, theirs := range map[Status]bool{0x23: false, 0x57: false, 0x56: true, 0x1b: true} {
		err := fmt.Errorf("some call: %w", answer(nil, uint32(status)))
		if got := !errors.Is(err, ErrNotTheirs); got != theirs {
			t.Errorf("%v: not theirs %v", err, !got)
		}
		var told Status
		if !errors.As(err, &told) || told != status {
			t.Errorf("%v has status %#x", err, told)
		}
	}
	if answer(nil, 0) != nil {
		t.Error("status 0 is an error")
	}
}

func TestAddressesAreThoseOfNVMLAndLinux(t *testing.T) {
	want := pciInfoParams{domain: 0, bus: 0x3b, slot: 0x1f}
	for _, address := range []string{"00000000:3B:1F.0", "0000:3b:1f.0", "0:3b:1f"} {
		if got, err := parseAddress(address); err != nil || got != want {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
	}
	if got, err := parseAddress("10000:00:00.0"); err != nil || got.domain != 0x10000 {
		t.Errorf("a wide domain: %+v, %v", got, err)
	}
	for _, address := range []string{"", "3b:00.0", "0000:3b:00.1", "0000:13b:00.0", "0000:3b:20.0", "0000:3b:00.0.0", "0000:3b:-1.0", "100000000:3b:00.0"} {
		if got, err := parseAddress(address); err == nil {
			t.Errorf("%q is taken for %+v", address, got)
		}
	}
}

func TestARecordIsReadAsTheDriverWritesIt(t *testing.T) {
	b := make([]byte, recordBytes)
	le.PutUint16(b, kindSwitch)
	b[8] = tagSimpleStart
	le.PutUint16(b[10:], 0xfffe)
	le.PutUint32(b[12:], 77)
	le.PutUint32(b[16:], 4711)
	le.PutUint64(b[24:], 1<<40)
	got := parseRecord(b)
	if want := (Record{Kind: 2, Tag: 6, Serial: 0xfffe, Channel: 77, PID: 4711, AtNS: 1 << 40}); got != want || !got.Starts() || got.Ends() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b[8] = tagSaveEnd
	if got := parseRecord(b); !got.Ends() || got.Starts() {
		t.Errorf("%+v ends nothing", got)
	}
	le.PutUint16(b, 4) // another kind, which has no tag there
	if got := parseRecord(b); got.IsSwitch() || got.Ends() || got.Starts() {
		t.Errorf("%+v is a switch", got)
	}
}
