// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

var run = Run{Job: 7, Restart: 1, Slices: 2}

func ms(n int64) *int64 { return &n }

// look is one of a job with two slices.
func look(at, busy int64) Look {
	return Look{AtUnixS: at, Slices: []Sample{{UsedMiB: at % 100, BusyMs: ms(busy)}, {BusyMs: ms(3 * busy)}}}
}

func add(t *testing.T, path string, looks ...Look) {
	t.Helper()
	for _, l := range looks {
		f, err := Open(path, run, uint32(os.Getuid()))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Add(l); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) History {
	t.Helper()
	h, err := Read(path, run)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// sums are all that a slice's points come to.
func sums(points []Point) (busy, most int64) {
	for _, p := range points {
		busy, most = busy+p.BusyMs, max(most, p.UsedMiB)
	}
	return busy, most
}

func TestPointsAreDifferences(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline")
	add(t, path, look(1000, 5), look(1010, 8), look(1020, 8))
	h := read(t, path)
	want := []Point{{1000, 0, 5}, {1010, 10, 3}, {1020, 20, 0}}
	if diff := cmp.Diff(want, h.Points(0, MaxRecorded)); diff != "" {
		t.Error(diff)
	}
	want = []Point{{1000, 0, 15}, {1010, 0, 9}, {1020, 0, 0}}
	if diff := cmp.Diff(want, h.Points(1, MaxRecorded)); diff != "" {
		t.Error(diff)
	}
	if last, ok := h.Last(1); !ok || *last.BusyMs != 24 {
		t.Errorf("the last one is %+v, %v", last, ok)
	}
	h = h.End(look(1025, 10))
	if points := h.Points(0, MaxRecorded); len(points) != 4 || points[3] != (Point{1025, 25, 2}) {
		t.Errorf("with its end: %v", points)
	}
	if points := h.End(look(1025, 12)).Points(0, MaxRecorded); len(points) != 4 || points[3] != (Point{1025, 25, 4}) {
		t.Errorf("with an end in the same second: %v", points)
	}
	if h := (History{}).End(look(1, 1)); len(h.looks) != 0 {
		t.Error("an end is made up where nobody has looked")
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
}

// A job of some hours, looked at every ten seconds: the number of points is bounded, they are evenly apart, and nothing is lost.
func TestAnyLengthOfJobHasAsManyPoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline")
	at, n := int64(1_000_000), int64(0)
	for range 2100 { // the file is folded after 480, 960 and 1920
		n++
		add(t, path, look(at+10*n, 7*n))
	}
	h := read(t, path)
	if len(h.looks) < maxKept/2 || len(h.looks) > maxKept {
		t.Fatalf("%d looks are kept", len(h.looks))
	}
	apart := h.looks[1].AtUnixS - h.looks[0].AtUnixS
	for i := 2; i < len(h.looks)-1; i++ {
		if d := h.looks[i].AtUnixS - h.looks[i-1].AtUnixS; d != apart {
			t.Fatalf("look %d is %d s after the one before it, others %d", i, d, apart)
		}
	}
	points := h.Points(0, MaxRecorded)
	busy, most := sums(points)
	if len(points) > MaxRecorded || len(points) < MaxRecorded/2 || busy != 7*n || most != 90 {
		t.Errorf("%d points, busy %d of %d, at most %d MiB", len(points), busy, 7*n, most)
	}
	if points[len(points)-1].AtUnixS != at+10*n {
		t.Error("the newest look is not the last point")
	}
}

// Looks that follow faster write over each other, and the most memory of them stays.
func TestLooksThatAreTooNearBecomeOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline")
	for i := range int64(31) {
		l := look(1000+i, i)
		l.Slices[0].UsedMiB = 5
		if i == 14 {
			l.Slices[0].UsedMiB = 99
		}
		add(t, path, l)
	}
	points := read(t, path).Points(0, MaxRecorded)
	busy, most := sums(points)
	if len(points) < 3 || len(points) > 6 || busy != 30 || most != 99 {
		t.Errorf("%v", points)
	}
}

// Whatever a writer that died has left: what is whole is read, and what comes next is written behind that.
func TestATornFileIsReadAsWhatIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline")
	add(t, path, look(1000, 1), look(1010, 2), look(1020, 3))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Index(string(whole), "\n") + 1
	for size := first; size < len(whole); size++ {
		if err := os.WriteFile(path, whole[:size], 0o640); err != nil {
			t.Fatal(err)
		}
		want := strings.Count(string(whole[first:size]), "\n")
		if got := len(read(t, path).looks); got != want {
			t.Fatalf("%d bytes: %d looks, want %d", size, got, want)
		}
		add(t, path, look(1030, 9))
		if got := read(t, path); len(got.looks) != want+1 || got.looks[want].Slices[0].busyMs() != 9 {
			t.Fatalf("%d bytes, and one look more: %+v", size, got.looks)
		}
	}
	if err := os.WriteFile(path, append(whole, "{\"t\":17,\"sli\ngarbage\n{\"t\":1025,\"slices\":[]}\n"...), 0o640); err != nil {
		t.Fatal(err)
	}
	add(t, path, look(1030, 9))
	if got := read(t, path); len(got.looks) != 4 || got.looks[3].AtUnixS != 1030 {
		t.Errorf("with garbage: %+v", got.looks)
	}
}

// An administrator's vgpuctl sample may run beside vgpud's.
func TestSamplersAtOnceLoseLooksAndNoMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline")
	at := int64(0)
	next := func() Look { at++; return look(at*10, at) }
	for range maxKept - 1 {
		add(t, path, next())
	}
	late, err := Open(path, run, uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	stale := next()
	for range 9 { // the file is folded meanwhile, and much shorter
		add(t, path, next())
	}
	if err := late.Add(stale); err != nil {
		t.Fatal(err)
	}
	last := next()
	add(t, path, last)
	if got := read(t, path); !cmp.Equal(got.looks[len(got.looks)-1], last) || len(got.looks) < maxKept/2 {
		t.Errorf("behind a writer that was late: %d looks, the last %+v", len(got.looks), got.looks[len(got.looks)-1])
	}
	var writers sync.WaitGroup
	for k := range int64(2) {
		writers.Go(func() {
			for i := range int64(500) {
				f, err := Open(path, run, uint32(os.Getuid()))
				if err == nil {
					err = f.Add(look(10000+100*i, i<<(30*k))) // lines of two lengths
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	last = look(1000000, 7)
	add(t, path, last)
	if got := read(t, path); !cmp.Equal(got.looks[len(got.looks)-1], last) || len(got.looks) < maxKept/8 {
		t.Errorf("behind two at once: %d looks, the last %+v", len(got.looks), got.looks[len(got.looks)-1])
	}
}

func TestWhatIsOfAnotherRunIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline")
	if _, err := Read(path, run); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	add(t, path, look(1000, 1))
	for _, other := range []Run{{Job: 8, Restart: 1, Slices: 2}, {Job: 7, Slices: 2}, {Job: 7, Restart: 1, Slices: 1}} {
		if _, err := Read(path, other); !errors.Is(err, ErrOther) {
			t.Errorf("%+v: %v", other, err)
		}
		if f, err := Open(path, other, 0); err != nil || f.last != nil {
			t.Errorf("%+v: opened as %+v, %v", other, f, err)
		}
	}
	for _, text := range []string{"", "{}\n", "\n", `{"version":1,"job":7,"restart":1,"slices":2,"every_s":10}` + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, run); !errors.Is(err, ErrOther) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, run); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("writable by others: %v", err)
	}
	if _, err := Open(path, run, 0); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("writable by others: %v", err)
	}
	if err := (&File{path: path, run: run}).Add(Look{AtUnixS: 1}); err == nil {
		t.Error("a look at no slice is written")
	}
}
