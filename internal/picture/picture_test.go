// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

var start = time.Date(2026, 11, 25, 1, 0, 0, 0, time.UTC)

func report(slices int) jobreport.Report {
	run := jobreport.Run{State: "RUNNING", Start: start}
	for i := range slices {
		s := jobreport.Slice{Node: "n<1>", Device: "GPU-aaaa", MemMiB: 8000, SMPercent: 30}
		for minute := range 60 {
			s.Timeline = append(s.Timeline, timeline.Point{AtUnixS: start.Add(time.Duration(minute+1) * time.Minute).Unix(),
				UsedMiB: int64(min(1900, 40*minute)), BusyMs: int64(17000 * (i + 1) / slices)})
		}
		run.Slices = append(run.Slices, s)
	}
	r := jobreport.Report{Job: 123, JobID: "123", Runs: []jobreport.Run{run}}
	r.Complete(start.Add(time.Hour), time.UTC)
	return r
}

// elements reads the whole picture and returns its elements with their texts.
func elements(t *testing.T, data []byte) (texts []string, dashed int) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(data))
	text := false
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return texts, dashed
		}
		if err != nil {
			t.Fatalf("it is not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			text = token.Name.Local == "text"
			for _, attr := range token.Attr {
				if attr.Name.Local == "style" && strings.Contains(attr.Value, "stroke-dasharray") && strings.Contains(attr.Value, "#C02A2A") {
					dashed++
				}
			}
		case xml.CharData:
			if words := strings.TrimSpace(string(token)); text && words != "" {
				texts = append(texts, words)
			}
		}
	}
}

func TestThePictureHasTheLimitAndTheCap(t *testing.T) {
	for _, n := range []int{1, 2, maxSlices + 3} {
		var out bytes.Buffer
		if err := SVG(&out, report(n), start.Add(time.Hour), time.UTC); err != nil {
			t.Fatal(err)
		}
		texts, dashed := elements(t, out.Bytes())
		for _, want := range []string{"limit, 8000 MiB", "cap, 30 %", "job 123 on n<1>, GPU-aaaa"} {
			if got := count(texts, want); got != min(n, maxSlices) {
				t.Errorf("%d slices: %q stands there %d times: %q", n, want, got, texts)
			}
		}
		if dashed != 2*min(n, maxSlices) {
			t.Errorf("%d slices: %d dashed lines", n, dashed)
		}
	}
}

func count(texts []string, want string) (n int) {
	for range len(texts) {
		i := slices.Index(texts, want)
		if i < 0 {
			break
		}
		n, texts = n+1, texts[i+1:]
	}
	return n
}

func TestNothingToDrawIsSaid(t *testing.T) {
	r := report(1)
	r.Runs[0].Slices[0].Timeline = nil
	r.Complete(start.Add(time.Hour), time.UTC)
	if err := SVG(io.Discard, r, start.Add(time.Hour), time.UTC); !errors.Is(err, ErrNoTimeline) {
		t.Errorf("got %v", err)
	}
}

// A run of no time, and one of weeks, have axes as well.
func TestAnyLengthHasAxes(t *testing.T) {
	for _, length := range []time.Duration{time.Second, time.Minute, 100 * 24 * time.Hour} {
		r := jobreport.Report{JobID: "1", Runs: []jobreport.Run{{Start: start, End: start.Add(length), Slices: []jobreport.Slice{{MemMiB: 100,
			Timeline: []timeline.Point{{AtUnixS: start.Add(length).Unix(), UsedMiB: 5, BusyMs: 10}}}}}}}
		r.Complete(start, time.UTC)
		var out bytes.Buffer
		if err := SVG(&out, r, start, time.UTC); err != nil {
			t.Fatal(err)
		}
		if texts, _ := elements(t, out.Bytes()); !slices.Contains(texts, "limit, 100 MiB") {
			t.Errorf("%v: %s", length, fmt.Sprint(texts))
		}
	}
}

// What was changed while the job ran lies inside of the frame: the memory that it had before, and the limit in steps.
func TestAChangedLimitStaysInTheFrame(t *testing.T) {
	r := report(1)
	s := &r.Runs[0].Slices[0]
	s.Earlier = []device.Limit{{UntilUnixS: start.Add(30 * time.Minute).Unix(), MemMiB: 8000, SMPercent: 60}}
	s.MemMiB, s.SMPercent = 1000, 10
	for i := range s.Timeline[:30] {
		s.Timeline[i].UsedMiB, s.Timeline[i].BusyMs = 7900, 35000
	}
	end := start.Add(time.Hour)
	r.Complete(end, time.UTC)
	memory, share, err := drawn{r.Runs[0], r.Runs[0].Slices[0]}.strips(end, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	if memory.Y.Max < 8000 || share.Y.Max < 60 || share.Y.Max > 100 {
		t.Errorf("the frames end at %g MiB and %g %%", memory.Y.Max, share.Y.Max)
	}
	var out, text bytes.Buffer
	if err := SVG(&out, r, end, time.UTC); err != nil {
		t.Fatal(err)
	}
	texts, dashed := elements(t, out.Bytes())
	if !slices.Contains(texts, "limit, 1000 MiB") || dashed != 2 {
		t.Errorf("%d dashed lines, %q", dashed, texts)
	}
	r.Text(&text, jobreport.Look{Now: end, Loc: time.UTC, Columns: 80, Strips: true})
	if !strings.Contains(text.String(), "limit 1000 at the end\n    8000 ") || !strings.Contains(text.String(), "from 8000 MiB and 60 % to 1000 MiB and 10 % at 01:30") {
		t.Errorf("the plot is\n%s", text.String())
	}
	if strings.Contains(text.String(), "ask for --vgpu-cores") || strings.Contains(text.String(), "with more than") {
		t.Errorf("advice is given by a limit that was changed:\n%s", text.String())
	}
}

// An elastic slice uses more than its share.
func TestMoreThanTheCapStaysInTheFrame(t *testing.T) {
	r := report(1)
	for i := range r.Runs[0].Slices[0].Timeline {
		r.Runs[0].Slices[0].Timeline[i].BusyMs = 54000
	}
	end := start.Add(time.Hour)
	r.Complete(end, time.UTC)
	_, share, err := drawn{r.Runs[0], r.Runs[0].Slices[0]}.strips(end, time.UTC)
	if err != nil || share.Y.Max < 90 {
		t.Errorf("the frame ends at %g %%, %v", share.Y.Max, err)
	}
}
