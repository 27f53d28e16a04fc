// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

const sampleComment = `{"vgpu":{"v":1,"nodes":{"n1":[{"gpu":"GPU-aa","mem_mib":3000,"cores":30,"peak_mib":2998,"refused":1,"gpu_s":12.5}]}}}`

// asSacctmgr is what Slurm 22.05's sacctmgr makes of a text.
func asSacctmgr(text string) string {
	return strings.ToLower(strings.NewReplacer(`"`, "`", "'", "`").Replace(text))
}

func TestMerge(t *testing.T) {
	refused := sample(7)
	refused.Devices, refused.Refusal = nil, `no GPU has 3000 MiB free; "h200" only`
	other := sample(7)
	other.Node = "n2"
	caught := sample(7)
	caught.Devices[0].Caught = usage.Caught{Seen: "runs while it is kept off", Frozen: 2, Killed: 1}
	later := sample(7) // the slice of a later build, as a reporter of this one reads it
	later.Later = map[string]any{"devices": []any{map[string]any{"made_up": 77, "refused": 2, "mode": "x", "timeline": []any{nil}}}}
	laterComment := strings.Replace(sampleComment, `12.5}`, `12.5,"made_up":77}`, 1)
	for name, tc := range map[string]struct {
		existing string
		rec      usage.Record
		want     string
	}{
		"later":            {"", later, laterComment},
		"later, elsewhere": {strings.ReplaceAll(laterComment, "n1", "n0"), sample(7), strings.Replace(laterComment, `"n1"`, `"n0"`, 1)[:len(laterComment)-3] + `,` + sampleComment[len(`{"vgpu":{"v":1,"nodes":{`):]},
		"empty":            {"", sample(7), sampleComment},
		"again":            {sampleComment, sample(7), sampleComment},
		"caught":           {"", caught, strings.Replace(sampleComment, `12.5}`, `12.5,"seen":"runs while it is kept off","frozen":2,"killed":1}`, 1)},
		"refused":          {"", refused, `{"vgpu":{"v":1,"nodes":{},"refusals":{"n1":"no GPU has 3000 MiB free; \"h200\" only"}}}`},
		"a second node": {sampleComment, other, `{"vgpu":{"v":1,"nodes":{"n1":[{"gpu":"GPU-aa","mem_mib":3000,"cores":30,"peak_mib":2998,"refused":1,"gpu_s":12.5}],` +
			`"n2":[{"gpu":"GPU-aa","mem_mib":3000,"cores":30,"peak_mib":2998,"refused":1,"gpu_s":12.5}]}}}`},
		"text":               {`paid by "X" <it's>`, sample(7), `{"text":"paid by \"X\" <it's>",` + sampleComment[1:]},
		"foreign object":     {`{"site":{"a":[1,2]}}`, sample(7), `{"site":{"a":[1,2]},` + sampleComment[1:]},
		"an array":           {`[1]`, sample(7), `{"text":"[1]",` + sampleComment[1:]},
		"null":               {`null`, sample(7), `{"text":"null",` + sampleComment[1:]},
		"broken part":        {`{"vgpu":7}`, sample(7), sampleComment},
		"sacctmgr's":         {asSacctmgr(sampleComment), sample(7), sampleComment},
		"was refused before": {`{"vgpu":{"v":1,"nodes":{},"refusals":{"n1":"x"}}}`, sample(7), sampleComment},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Merge(tc.existing, tc.rec)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if !Stands(got, tc.rec) {
				t.Error("the merged part does not stand")
			}
			if lower := asSacctmgr(strings.ReplaceAll(got, "'", `\u0027`)); !Stands(lower, tc.rec) {
				t.Errorf("it does not stand as sacctmgr would write it: %s", lower)
			}
		})
	}
}

func TestACommentSaysWhatNobodyCounted(t *testing.T) {
	rec := sample(7)
	rec.Devices[0].UnknownSeconds, rec.Devices[0].Inexact = 0.4, true
	text, err := Merge("", rec)
	want := strings.Replace(sampleComment, `12.5}`, `12.5,"unknown_s":0.4,"inexact":true}`, 1)
	if err != nil || text != want {
		t.Fatalf("got  %s\nwant %s, %v", text, want, err)
	}
	for _, text := range []string{text, asSacctmgr(text)} {
		comment, err := ParseComment(text)
		if err != nil || !Stands(text, rec) {
			t.Fatalf("%s does not stand: %v", text, err)
		}
		if got := comment.Nodes["n1"][0].Time; !cmp.Equal(got, rec.Devices[0].Time) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	rec.Devices[0].UnknownSeconds = 0.5
	if Stands(text, rec) {
		t.Error("another time unknown stands")
	}
	rec.Devices[0].Time = usage.Time{}
	if text, err = Merge("", rec); err != nil || strings.Contains(text, "gpu_s") || !Stands(text, rec) {
		t.Errorf("of a slice at which vgpud has not looked: %s, %v", text, err)
	}
}

// UUIDs are compared with those of the node, which are not in lower case.
func TestACommentOfSacctmgrNamesTheGPU(t *testing.T) {
	for written, want := range map[string]device.UUID{"GPU-aa": "GPU-aa", "MIG-aa-1": "MIG-aa-1", "gpux": "gpux", "other-aa": "other-aa"} {
		comment, err := ParseComment(asSacctmgr(strings.ReplaceAll(sampleComment, "GPU-aa", written)))
		if err != nil || len(comment.Nodes["n1"]) != 1 || comment.Nodes["n1"][0].GPU != want {
			t.Errorf("%s: %+v, %v", written, comment, err)
		}
	}
}

func TestStandsIsExact(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":    "",
		"text":       "hello",
		"other node": strings.ReplaceAll(sampleComment, "n1", "n2"),
		"other peak": strings.ReplaceAll(sampleComment, "2998", "2999"),
		"other time": strings.ReplaceAll(sampleComment, "12.5", "12.4"),
		"other GPU":  strings.ReplaceAll(sampleComment, "GPU-aa", "GPU-ab"),
		"cut":        sampleComment[:len(sampleComment)-1],
		"newer":      strings.ReplaceAll(sampleComment, `"v":1`, `"v":2`),
		"refused":    `{"vgpu":{"v":1,"nodes":{},"refusals":{"n1":"x"}}}`,
	} {
		if Stands(text, sample(7)) {
			t.Errorf("%s: %s stands", name, text)
		}
	}
}

func TestARefusalStandsForItsNodeAlone(t *testing.T) {
	rec := sample(7)
	rec.Devices, rec.Refusal = nil, "no room"
	for text, stands := range map[string]bool{
		`{"vgpu":{"v":1,"nodes":{},"refusals":{"n2":"no room"}}}`:                  false,
		`{"vgpu":{"v":1,"nodes":{},"refusals":{"n1":"x"}}}`:                        false,
		`{"vgpu":{"v":1,"nodes":{},"refusals":{"n2":"x","n1":"no room"}}}`:         true,
		`{"vgpu":{"v":1,"nodes":{"n1":[]}}}`:                                       false,
		"{`vgpu`:{`v`:1,`nodes`:{},`refusals`:{`n1`:`no room`}}}":                  true,
		`{"vgpu":{"v":1,"nodes":{"n2":[]},"refusals":{"N1":"No room"}},"text":""}`: true,
	} {
		if Stands(text, rec) != stands {
			t.Errorf("%s: it stands: %v", text, !stands)
		}
	}
}

func TestMergeLeavesANewerVersionAlone(t *testing.T) {
	if text, err := Merge(`{"vgpu":{"v":2,"nodes":[]}}`, sample(7)); !errors.Is(err, ErrCommentVersion) {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestWhatIsNoJSONIsNotWritten(t *testing.T) {
	rec := sample(7)
	*rec.Devices[0].GPUSeconds = math.NaN()
	if text, err := Merge("", rec); err == nil {
		t.Errorf("merged into %q", text)
	}
}

func TestMergeStaysWithinTheColumn(t *testing.T) {
	text := ""
	for i := range 10000 {
		rec := sample(7)
		rec.Node = fmt.Sprintf("node%05d", i)
		merged, err := Merge(text, rec)
		if errors.Is(err, ErrCommentFull) {
			if i < 300 {
				t.Errorf("full after %d nodes", i)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text = merged
	}
	t.Errorf("%d bytes and not full", len(text))
}

// Whatever stands in the comment, a merge is one JSON object, holds our part, and merging again
// changes nothing.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		existing := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"", "{}", sampleComment, `{"vgpu":{"v":1}}`, `{"vgpu":null}`, asSacctmgr(sampleComment), `{"text":1}`})).Draw(t, "existing")
		rec := sample(7)
		rec.Node = rapid.StringMatching(`[a-zA-Z][a-zA-Z0-9-]{0,10}`).Draw(t, "node")
		*rec.Devices[0].PeakMiB = rapid.Int64Range(0, 1<<40).Draw(t, "peak")
		rec.Devices[0].Device = device.UUID(rapid.StringMatching(`GPU-[0-9a-f]{8}`).Draw(t, "uuid"))
		if rapid.Bool().Draw(t, "refused") {
			rec.Refusal = rapid.StringMatching(`.{1,40}`).Draw(t, "refusal")
		}
		once, err := Merge(existing, rec)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(once), &object); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if !Stands(once, rec) {
			t.Fatalf("does not stand in %s", once)
		}
		twice, err := Merge(once, rec)
		if err != nil || twice != once {
			t.Fatalf("merged again: %s, %v, want %s", twice, err, once)
		}
	})
}

func TestWhatAJobWaitedForIsNotKept(t *testing.T) {
	rec := usage.Record{Job: 1, Node: "n1", Refusal: "x"}
	want, err := Merge("", rec)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Merge(slurm.WaitsPrefix+"n1: no GPU fits", rec); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
