// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurmconf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// files writes a folder and returns the path of its slurm.conf.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "slurm.conf")
}

func read(t *testing.T, text string) File {
	t.Helper()
	file, err := Read(files(t, map[string]string{"slurm.conf": text}))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestValue(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want string
		line       int
	}{
		"plain":           {"GresTypes=gpu\n", "gpu", 1},
		"any case":        {"\n\nGRESTYPES=gpu,VGPU", "gpu,VGPU", 3},
		"last wins":       {"GresTypes=a\nGresTypes=b\n", "b", 2},
		"added":           {"GresTypes=a\nGresTypes+=b\n", "a,b", 2},
		"added to none":   {"GresTypes+=b\n", "b", 1},
		"quoted":          {`GresTypes="a b"`, "a b", 1},
		"comment":         {"GresTypes=a # GresTypes=b\n#GresTypes=c", "a", 1},
		"escaped comment": {`GresTypes=a\#b`, "a#b", 1},
		"continued":       {"GresTypes=a,\\\nb,\\\nc\n", "a,b,c", 1},
		"blanks":          {"   GresTypes=a\t\r\n", "a", 1},
		"blanks around =": {"GresTypes \t=  a\n", "a", 1},
		"a tab before =":  {"GresTypes\t=a\n", "a", 1},
		"added, blanks":   {"GresTypes=a\nGresTypes += b\n", "a,b", 2},
		"escaped slash":   {`GresTypes=a\\b`, `a\b`, 1},
		"even slashes":    {"GresTypes=a\\\\\nX=b\n", `a\`, 1},
		"blanks after \\": {"GresTypes=a,\\ \t\r\nb\n", "a,b", 1},
		"comment at end":  {"GresTypes=a # more \\\nX=b\n", "a", 1},
		"quote inside":    {`GresTypes=a"b"`, `a"b"`, 1},
		"apostrophes":     {`GresTypes='a'`, `'a'`, 1},
		"of nothing":      {"GresTypes=\n", "", 0},
		"value on next":   {"GresTypes= \\\na\n", "a", 1},
		"of another line": {"NodeName=n1 GresTypes=a\n", "", 0},
		"none":            {"", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, at, ok := read(t, tc.text).Value("GresTypes")
			if got != tc.want || at.Number != tc.line || ok != (tc.line > 0) {
				t.Errorf("got %q at line %d, %v; want %q at %d", got, at.Number, ok, tc.want, tc.line)
			}
		})
	}
}

func TestWords(t *testing.T) {
	got := read(t, "PrologFlags=Alloc, Contain,,X11").Words("prologflags")
	// A blank ends the value, as it does for Slurm.
	if diff := cmp.Diff([]string{"alloc"}, got); diff != "" {
		t.Error(diff)
	}
	got = read(t, `PrologFlags="Alloc, Contain,,X11"`).Words("prologflags")
	if diff := cmp.Diff([]string{"alloc", "contain", "x11"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNode(t *testing.T) {
	file := read(t, `
NodeName=n0 Gres=gpu:1
NodeName=DEFAULT CPUs=4 Gres=vgpu:10
NodeName=n[1-4,08] Gres=vgpu:20 \
   Port=7
NodeName=m1,m2
`)
	for name, want := range map[string]map[string]string{
		"n0":  {"gres": "gpu:1"},
		"n2":  {"gres": "vgpu:20", "cpus": "4", "port": "7"},
		"n08": {"gres": "vgpu:20", "cpus": "4", "port": "7"},
		"n8":  nil,
		"m2":  {"gres": "vgpu:10", "cpus": "4"},
		"n":   nil,
		"":    nil,
	} {
		got, _, ok := file.Node(name)
		if diff := cmp.Diff(want, got); diff != "" || ok != (want != nil) {
			t.Errorf("%q: %v %s", name, ok, diff)
		}
	}
}

func TestGRES(t *testing.T) {
	file := read(t, `
Name=vgpu Count=1
NodeName=n[1-2] Name=VGPU Count=2
NodeName=n3 Name=vgpu Count=3
Name=gpu File=/dev/nvidia0
`)
	var counts []string
	for _, line := range file.GRES("vgpu", "n2") {
		count, _ := line.Get("count")
		counts = append(counts, count)
	}
	if diff := cmp.Diff([]string{"1", "2"}, counts); diff != "" {
		t.Error(diff)
	}
}

func TestInclude(t *testing.T) {
	file, err := Read(files(t, map[string]string{
		"slurm.conf":         "ClusterName = Cc\nInclude sub/b.conf\ninclude\tc_%c.conf # why\nA=4\nIncludes=x\nInclude = y\ninclude\n  Include c_cc.conf\n",
		"sub/b.conf":         "A=2\nInclude more/deep.conf\nInclude d.conf\n",
		"sub/more/deep.conf": "B=2", // beside the file that includes it
		"d.conf":             "D=2", // beside the first one
		"c_cc.conf":          "A=3",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range file.Lines {
		got = append(got, filepath.Base(line.File)+" "+line.Pairs[0].Key+"="+line.Pairs[0].Value)
	}
	want := []string{"slurm.conf clustername=Cc", "b.conf a=2", "deep.conf b=2", "d.conf d=2", "c_cc.conf a=3", "slurm.conf a=4", "slurm.conf includes=x",
		"slurm.conf include=y"} // which names no file
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(file.Untaken) != 2 || file.Untaken[0].Text != "include" || file.Untaken[1].Text != "Include c_cc.conf" {
		t.Errorf("not taken: %v", file.Untaken)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		content map[string]string
		want    error
	}{
		"missing":         {nil, fs.ErrNotExist},
		"no cluster yet":  {map[string]string{"slurm.conf": "Include %c.conf\nClusterName=c", "c.conf": ""}, errNoCluster},
		"missing include": {map[string]string{"slurm.conf": "Include x.conf"}, fs.ErrNotExist},
		"itself":          {map[string]string{"slurm.conf": "Include slurm.conf"}, ErrLimits},
		"many lines":      {map[string]string{"slurm.conf": strings.Repeat("a\n", maxLines+1)}, ErrLimits},
		"huge":            {map[string]string{"slurm.conf": string(make([]byte, maxFileBytes+1))}, ErrLimits},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(files(t, tc.content)); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// Any text is read without a panic, and no line or key is made up.
func TestReadAnything(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab=\"\\# \t\n,+[]Include"))).Draw(rt, "text")
		path := filepath.Join(dir, "slurm.conf")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			rt.Fatal(err)
		}
		file, err := Read(path)
		if err != nil {
			return
		}
		for _, line := range file.Lines {
			if line.Number < 1 {
				rt.Fatalf("line %+v", line)
			}
		}
		file.Node("a1")
		file.GRES("a", "b")
		file.Words("a")
	})
}
