// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// answer is what scontrol and squeue of a release said of a job. In place of each text that its
// owner could choose stands a word like @COMMENT@.
type answer struct {
	name    string
	id      uint32
	text    string
	squeue  string // "" for a job of which squeue is not asked
	honest  Job
	granted request.Entitlement
	err     error // of Entitlement
}

var (
	userText = regexp.MustCompile(`@[A-Z]+@`)
	firstID  = regexp.MustCompile(`^JobId=([0-9]+) `)
)

// ask is what a Client makes of the answers.
func ask(text, squeue string, id uint32) (Job, error) {
	job, err := parseJob(text, id)
	if err == nil && job.Exclusive {
		job.asked, job.gpus, err = parseAsked(squeue, strconv.FormatUint(uint64(id), 10))
	}
	return job, err
}

// answers reads testdata/RELEASE/*.txt.
func answers(t testing.TB) []answer {
	t.Helper()
	files, err := filepath.Glob("testdata/[0-9][0-9].[0-9][0-9]/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no answers", err)
	}
	var list []answer
	for _, file := range files {
		if strings.HasSuffix(file, ".squeue.txt") {
			continue
		}
		name := strings.TrimPrefix(file, "testdata/")
		a := answer{name: name, text: fixture(t, name)}
		found := firstID.FindStringSubmatch(a.text)
		if found == nil {
			t.Fatalf("%s is no answer", file)
		}
		id, _ := strconv.ParseUint(found[1], 10, 32)
		a.id = uint32(id)
		if squeue, err := os.ReadFile(strings.TrimSuffix(file, ".txt") + ".squeue.txt"); err == nil {
			a.squeue = string(squeue)
		}
		if a.honest, err = ask(a.text, a.squeue, a.id); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		a.granted, a.err = a.honest.Entitlement("n1")
		list = append(list, a)
	}
	return list
}

func TestEntitlementOfEveryRelease(t *testing.T) {
	want := map[string]request.Entitlement{
		"marked":            {Slices: 1, MemMiB: 3000},
		"container":         {Slices: 1, MemMiB: 3000},
		"array":             {Slices: 1, MemMiB: 500},
		"plain":             {},
		"exclusive":         {Slices: 1, MemMiB: 3000},
		"exclusive-unasked": {},
		"exclusive-user":    {Slices: 1, MemMiB: 3000},
		"exclusive-mcs":     {Slices: 1, MemMiB: 3000},
	}
	seen := map[string]int{}
	for _, a := range answers(t) {
		kind := strings.TrimSuffix(filepath.Base(a.name), ".txt")
		seen[filepath.Dir(a.name)]++
		switch e, known := want[kind]; {
		case kind == "pending" && !errors.Is(a.err, ErrNoDetail):
			t.Errorf("%s: %+v, %v", a.name, a.granted, a.err)
		case known && (a.err != nil || a.granted != e):
			t.Errorf("%s: got %+v, %v; want %+v", a.name, a.granted, a.err, e)
		}
		if whole := kind == "exclusive" || kind == "exclusive-unasked"; a.honest.Exclusive != whole {
			t.Errorf("%s: whole nodes: %v", a.name, a.honest.Exclusive)
		}
		if finished := kind == "pending" || kind == "over"; a.honest.Finished(0) != finished || a.honest.UID != 1000 {
			t.Errorf("%s: %+v", a.name, a.honest)
		}
		if a.honest.QOS != "normal" || a.honest.Partition != "vgpu" {
			t.Errorf("%s: QOS %q, partition %q", a.name, a.honest.QOS, a.honest.Partition)
		}
		if (kind == "array") != (a.honest.ArrayTaskID == "3") {
			t.Errorf("%s: task %q", a.name, a.honest.ArrayTaskID)
		}
	}
	if len(seen) != 3 || seen["26.05"] < len(want) {
		t.Errorf("there are answers of %v", seen)
	}
}

// believed puts texts into an answer and says what of it was believed.
func (a answer) believed(t *testing.T, texts map[string]string) {
	t.Helper()
	hostile := userText.ReplaceAllStringFunc(a.text, func(word string) string {
		if text, ok := texts[word]; ok {
			return text
		}
		return word
	})
	got, err := ask(hostile, a.squeue, a.id)
	if err != nil {
		if !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s with %q: %v", a.name, texts, err)
		}
		return
	}
	// What is imitated is not known.
	if got.QOS == "" {
		got.QOS = a.honest.QOS
	}
	if got.Account == "" {
		got.Account = a.honest.Account
	}
	if got.Partition == "" {
		got.Partition, got.unclear = a.honest.Partition, a.honest.unclear
	}
	got.commented = a.honest.commented // it is about nothing but that text, and decides about nothing but it
	if diff := cmp.Diff(a.honest, got, cmp.AllowUnexported(Job{}, nodeGRES{})); diff != "" {
		t.Errorf("%s with %q is believed: %s", a.name, texts, diff)
	}
	if granted, err := got.Entitlement("n1"); granted != a.granted || (err == nil) != (a.err == nil) {
		t.Errorf("%s with %q gets %+v, %v", a.name, texts, granted, err)
	}
}

func hostileTexts(t testing.TB) (texts []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/hostile/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no hostile texts", err)
	}
	for _, file := range files {
		texts = append(texts, fixture(t, strings.TrimPrefix(file, "testdata/")))
	}
	return texts
}

func TestNoTextOfAUserPassesForAField(t *testing.T) {
	texts := hostileTexts(t)
	for _, a := range answers(t) {
		for _, word := range userText.FindAllString(a.text, -1) {
			for _, text := range texts {
				a.believed(t, map[string]string{word: text})
			}
		}
	}
}

// What a user quotes after the fields that are read must not stand in his job's way, unless a text of his
// stands among them.
func TestQuotedFieldsDoNotStandInTheWay(t *testing.T) {
	for _, a := range answers(t) {
		if a.honest.State == "PENDING" { // has no detail, which would part the fields from the rest
			continue
		}
		a.text = strings.ReplaceAll(a.text, " ClusterFeatures=@CLUSTERFEATURE@", "")
		for _, word := range []string{"@COMMENT@", "@WRAP@", "@EXTRA@", "@NETWORK@"} {
			text := strings.ReplaceAll(a.text, word, "scontrol show job | grep -e OverSubscribe= -e TresPerNode=x -e JobState= UserId=")
			if got, err := ask(text, a.squeue, a.id); err != nil || got.Exclusive != a.honest.Exclusive {
				t.Errorf("%s, %s: %+v, %v", a.name, word, got, err)
			}
		}
	}
}

func FuzzHostileTexts(f *testing.F) {
	list, texts := answers(f), hostileTexts(f)
	for i, text := range texts {
		f.Add(uint8(i), text, "", text)
		f.Add(uint8(3*i), "", text, texts[(i+1)%len(texts)])
	}
	f.Fuzz(func(t *testing.T, which uint8, name, features, rest string) {
		a := list[int(which)%len(list)]
		filled := map[string]string{}
		for _, word := range userText.FindAllString(a.text, -1) {
			filled[word] = strings.ReplaceAll(rest, "\x00", "") // no argument of a command holds one
		}
		filled["@NAME@"], filled["@CLUSTERFEATURE@"] = strings.ReplaceAll(name, "\x00", ""), strings.ReplaceAll(features, "\x00", "")
		a.believed(t, filled)
	})
}

func TestAskedOfSqueue(t *testing.T) {
	for text, want := range map[string]*request.Entitlement{
		"7|N/A|N/A|N/A|N/A|\n": {},
		"7||||cpu:1|\n":        {},
		"7|gres/vgpu:2,gres/gpumem:3000|N/A|N/A|N/A|\n":                   {Slices: 2, MemMiB: 3000},
		"6|gres:vgpu:1|N/A|N/A|N/A|\n7|gres:vgpu:2|gres:gpu:1|N/A|N/A|\n": {Slices: 2},
		"": nil, "6|N/A|N/A|N/A|N/A|\n": nil, "7|N/A|N/A|N/A|N/A": nil, "7|N/A|N/A|N/A|N/A|\n7|N/A|N/A|N/A|N/A|\n": nil,
		"7|N/A|N/A|N/A|gres/vgpu:1|\n": nil, "7|N/A|gres:gpumem:10|N/A|N/A|\n": nil, "7|a|b|N/A|N/A|N/A|\n": nil, "7|gres:vgpu:x1|N/A|N/A|N/A|\n": {Slices: 1},
	} {
		got, _, err := parseAsked(text, "7")
		if want == nil && err == nil || want != nil && (err != nil || *got != *want) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// A job that has to do with vgpu never comes out as one that has not.
func TestEntitlementThatComesToNothingIsRefused(t *testing.T) {
	node := func(gres string) []nodeGRES { return []nodeGRES{{"n1", gres}, {"n2", "vgpu(CNT:1)"}} }
	whole := func(gres string, asked request.Entitlement) Job {
		return Job{detailed: true, Exclusive: true, total: gres, nodes: node(gres), asked: &asked}
	}
	for name, job := range map[string]Job{
		"nothing here of the whole": {detailed: true, total: "vgpu:1", nodes: node("")},
		"asked, not allocated":      whole("", request.Entitlement{Slices: 1}),
		"asked for another thing":   whole("vgpu(CNT:1)", request.Entitlement{SMPercent: 30}),
	} {
		if e, err := job.Entitlement("n1"); !errors.Is(err, ErrContradiction) {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
	}
	for _, gres := range []string{"vgpu(CNT:1),gpumem(CNT:many)", "vgpu(CNT:x)"} {
		if e, err := (Job{detailed: true, total: "vgpu:1", nodes: node(gres)}).Entitlement("n1"); err == nil || errors.Is(err, ErrContradiction) {
			t.Errorf("GRES %s that cannot be read: got %+v, %v", gres, e, err)
		}
	}
	if e, err := (Job{detailed: true, Exclusive: true, nodes: node("vgpu(CNT:1)")}).Entitlement("n1"); !errors.Is(err, ErrNoDetail) {
		t.Errorf("whole nodes without what was asked: got %+v, %v", e, err)
	}
}
