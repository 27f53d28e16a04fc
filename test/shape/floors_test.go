// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slurm-vgpu/slurm-vgpu/"

// floors are the packages of internal/. Each imports only from lower floors, which stand before its own in this list.
var floors = [][]string{
	{"crashpoint", "device", "installed", "pattern", "request", "share", "slurmdb", "trusted", "version", "words"},
	{"channels", "devfiles", "driver", "inventory", "ledger", "place", "rundir", "slurm"},
	{"config", "discover", "drained", "grant", "metrics", "pages", "slurmconf", "timeline"},
	{"builds", "logging", "state", "usage"},
	{"audit", "jobreport", "launch", "queue", "release", "report", "sitecheck", "tally", "wall"},
	{"keeper", "picture", "sample", "sweep"},
}

// pure packages give the same answer to the same question: whoever reads files, asks the system or starts
// programs is not among what they import, themselves or by way of another package of ours.
var pure = []string{"device", "place", "request", "share"}

var impure = []string{"os", "os/exec", "io/fs", "net", "path/filepath", "syscall", "time", "math/rand", "math/rand/v2", "golang.org/x/sys"}

// The plugin is loaded into Slurm's own processes, so that it is small: no configuration, no logging, no network.
var tooMuchForThePlugin = []string{"internal/config", "internal/logging", "github.com/spf13", "github.com/hashicorp", "net", "net/http", "regexp", "os/signal"}

// goPackage is the part of `go list -json` that matters here.
type goPackage struct {
	ImportPath string
	Imports    []string
}

// packages are those of this module, by their path in it.
func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	listed, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages: %v", err)
	}
	found := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(listed))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		for i := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(p.Imports[i], module)
		}
		found[strings.TrimPrefix(p.ImportPath, module)] = p
	}
	return found
}

// wrongArrows names the imports that lead up, or to where nothing leads.
func wrongArrows(all map[string]goPackage, floors [][]string) (found []string) {
	floorOf := map[string]int{}
	for i, floor := range floors {
		for _, name := range floor {
			floorOf["internal/"+name] = i
		}
	}
	for name, p := range all {
		from, inside := floorOf[name]
		if strings.HasPrefix(name, "internal/") && !inside {
			found = append(found, name+" stands on no floor")
		}
		for _, imported := range p.Imports {
			_, ours := all[imported]
			to, below := floorOf[imported]
			switch {
			case !ours:
			case inside && (!below || to >= from):
				found = append(found, fmt.Sprintf("%s imports %s, which is no floor below it", name, imported))
			case !inside && !below && !strings.HasPrefix(name, "test/"):
				found = append(found, fmt.Sprintf("%s imports %s: programs share what is in internal/", name, imported))
			}
		}
	}
	for name := range floorOf {
		if _, ok := all[name]; !ok {
			found = append(found, name+" is on a floor, but there is no such package")
		}
	}
	slices.Sort(found)
	return found
}

// reaches names what of banned a package imports, itself or by way of packages of ours.
func reaches(all map[string]goPackage, name string, banned []string) (found []string) {
	for _, imported := range all[name].Imports {
		for _, b := range banned {
			if imported == b || strings.HasPrefix(imported, b+"/") && strings.Contains(b, ".") {
				found = append(found, name+" imports "+imported)
			}
		}
		if _, ours := all[imported]; ours {
			found = append(found, reaches(all, imported, banned)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestArrowsLeadDown(t *testing.T) {
	for _, found := range wrongArrows(packages(t), floors) {
		t.Error(found)
	}
}

func TestPurePackagesAskNobody(t *testing.T) {
	all := packages(t)
	for _, name := range pure {
		for _, found := range reaches(all, "internal/"+name, impure) {
			if found != "internal/share imports time" {
				t.Errorf("%s is to be pure: %s", name, found)
			}
		}
	}
}

var askedOfTime = regexp.MustCompile(`\btime\.(\w+)`)

// Times that a package is given have the type and the units of the library's.
func TestWhatIsPureReadsNoClock(t *testing.T) {
	for _, name := range sources(t, ".go") {
		if filepath.Dir(name) != "internal/share" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, asked := range askedOfTime.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains([]string{"Duration", "Microsecond", "Millisecond", "Second"}, asked[1]) {
				t.Errorf("%s asks for %s", name, asked[0])
			}
		}
	}
}

func TestThePluginIsSmall(t *testing.T) {
	for _, found := range reaches(packages(t), "spank/launch", tooMuchForThePlugin) {
		t.Error(found)
	}
}

// vgpuctl is started by each epilog, and what draws takes as long to start as half of vgpuctl.
func TestOnlyOneProgramDraws(t *testing.T) {
	for _, found := range reaches(packages(t), "ctl", []string{"gonum.org/v1/plot"}) {
		t.Error(found)
	}
}

// Nor does another program than vgpu-exporter start client_golang, or an HTTP server.
func TestOnlyOneProgramExports(t *testing.T) {
	all := packages(t)
	for _, name := range []string{"ctl", "draw", "epilog", "gres", "layout", "prolog", "vgpud"} {
		for _, found := range reaches(all, name, []string{"github.com/prometheus", "net/http"}) {
			t.Error(found)
		}
	}
	if len(reaches(all, "exporter", []string{"github.com/prometheus"})) == 0 {
		t.Error("the exporter has none either")
	}
}

// golangci-lint shows a wrong arrow in the editor, where .golangci.yml has the floors as well.
func TestLinterKnowsTheFloors(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	var below []string
	for i, floor := range floors {
		fmt.Fprintf(&want, "        floor%d:\n          list-mode: lax\n          files:\n            - \"!$test\"\n", i)
		for _, name := range floor {
			fmt.Fprintf(&want, "            - \"**/internal/%s/*.go\"\n", name)
		}
		fmt.Fprintf(&want, "          deny:\n            - pkg: %s\n              desc: no floor below this one\n", strings.TrimSuffix(module, "/"))
		if i > 0 {
			want.WriteString("          allow:\n")
		}
		for _, name := range below {
			fmt.Fprintf(&want, "            - %sinternal/%s$\n", module, name)
		}
		below = append(below, floor...)
	}
	const begin, end = "        # The floors of internal.\n", "        # No more floors.\n"
	_, rest, _ := strings.Cut(string(config), begin)
	got, _, found := strings.Cut(rest, end)
	if !found || got != want.String() {
		t.Errorf(".golangci.yml has other floors than floors_test.go; between its two comments belongs\n%s", want.String())
	}
}

func TestWrongArrowsAreFound(t *testing.T) {
	all := map[string]goPackage{
		"internal/low":    {Imports: []string{"internal/high", "strings"}},
		"internal/high":   {Imports: []string{"internal/low", "internal/beside", "os"}},
		"internal/beside": {},
		"internal/lost":   {},
		"ctl":             {Imports: []string{"internal/high", "prolog"}},
		"prolog":          {Imports: []string{"internal/low"}},
		"test/x":          {Imports: []string{"test/y", "golang.org/x/sys/unix"}},
		"test/y":          {},
	}
	want := []string{
		"ctl imports prolog: programs share what is in internal/",
		"internal/gone is on a floor, but there is no such package",
		"internal/high imports internal/beside, which is no floor below it",
		"internal/lost stands on no floor",
		"internal/low imports internal/high, which is no floor below it",
	}
	if got := wrongArrows(all, [][]string{{"low"}, {"high", "beside", "gone"}}); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	delete(all, "internal/low")
	if got := reaches(all, "ctl", []string{"os", "internal/beside"}); !slices.Equal(got, []string{"internal/high imports internal/beside", "internal/high imports os"}) {
		t.Errorf("got %q", got)
	}
	if got := reaches(all, "test/x", []string{"golang.org/x/sys", "os"}); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}
