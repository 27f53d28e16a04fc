// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func committed(t *testing.T) tables {
	t.Helper()
	tab, err := readTables(root)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestEveryEntryPointIsAccountedFor(t *testing.T) {
	if _, err := committed(t).check(); err != nil {
		t.Error(err)
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	entries, err := committed(t).check()
	if err != nil {
		t.Skip("the tables are wrong, as TestEveryEntryPointIsAccountedFor says")
	}
	have, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(render(entries), string(have)); diff != "" {
		t.Errorf("%s: `make coverage` would change it (-new +committed):\n%s", document, diff)
	}
}

// The module that the build compiles against says what NVML is.
func TestNamesHoldAllOfTheModulesHeader(t *testing.T) {
	found := existing("nvml.h", goNVML(root))
	if len(found) == 0 {
		t.Skip("go-nvml is not in the module cache")
	}
	h, err := readHeader(found[0])
	if err != nil {
		t.Fatal(err)
	}
	names := committed(t).names
	for _, name := range h.names {
		if !names[name] {
			t.Errorf("%s is declared, and not in %s: run coverage -take", name, namesDir)
		}
	}
}

func TestEveryRowIsInATest(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, testsDir, "*/*.c"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", testsDir, err)
	}
	word := regexp.MustCompile(`\w+`)
	named := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range word.FindAllString(string(text), -1) {
			named[w] = true
		}
	}
	rows := committed(t).rows
	for _, symbol := range sorted(rows) {
		// What is called and not wrapped is tested by what it is called for.
		if !named[symbol] && rows[symbol] != "USE" {
			t.Errorf("no test in %s names %s (row %s)", testsDir, symbol, rows[symbol])
		}
	}
}

func TestEveryRowIsSimulated(t *testing.T) {
	exported := map[string]bool{}
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		library, err := elf.Open(filepath.Join(root, "build/sim", name))
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("%s is not built (make build)", name)
		}
		if err != nil {
			t.Fatal(err)
		}
		dynamic, err := library.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, symbol := range dynamic {
			if symbol.Section != elf.SHN_UNDEF {
				exported[symbol.Name] = true
			}
		}
		if err := library.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, symbol := range sorted(committed(t).rows) {
		if !exported[symbol] {
			t.Errorf("the simulated libraries do not export %s", symbol)
		}
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	good := func() tables {
		return tables{
			names: map[string]bool{"cuMemAlloc_v2": true, "cuMemAlloc": true, "cuInit": true},
			rows:  map[string]string{"cuMemAlloc_v2": "ALLOC", "cuMemAlloc": "ALLOC"},
			rules: []rule{{class: "allocates", pattern: "cuMemAlloc"}, {class: neither, pattern: "cuInit"}},
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(*tables)
		want  string
	}{
		{"nothing", func(*tables) {}, ""},
		{"an entry point nobody has looked at", func(t *tables) { t.names["cuMemNew_v2"] = true }, "cuMemNew_v2 matches no pattern"},
		{"a variant without a row", func(t *tables) { t.names["cuMemAlloc_v3_ptsz"] = true },
			"cuMemAlloc_v3_ptsz allocates, has no row"},
		{"a row that is only used", func(t *tables) { t.rows["cuMemAlloc"] = usedOnly }, "cuMemAlloc allocates, has no row"},
		{"a row nobody declares", func(t *tables) { t.rows["cuMemAllc"] = "ALLOC" }, "cuMemAllc has a row"},
		{"a pattern that is never reached", func(t *tables) { t.rules = append(t.rules, rule{class: "maps", pattern: "cuM*"}) },
			"cuM* matches no entry point"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tab := good()
			test.spoil(&tab)
			_, err := tab.check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check says %v, want %q", err, test.want)
			}
		})
	}
}

func TestCompareLooksAtNewNames(t *testing.T) {
	tab := tables{names: map[string]bool{"cuInit": true}, rules: []rule{{class: neither, pattern: "cuInit"}}}
	if err := tab.compare(header{path: "cuda.h", names: []string{"cuInit", "cuInit_v2"}}); err != nil {
		t.Errorf("a known name and a variant of it: %v", err)
	}
	if err := tab.compare(header{path: "cuda.h", names: []string{"cuMemNew"}}); !errors.Is(err, errUnknown) {
		t.Errorf("a name that matches no pattern: %v, want errUnknown", err)
	}
}

func TestSplitVariant(t *testing.T) {
	for symbol, want := range map[string][2]string{
		"cuMemAlloc":                       {"cuMemAlloc", ""},
		"cuMemAlloc_v2":                    {"cuMemAlloc", "_v2"},
		"cuMemcpyHtoD_v2_ptds":             {"cuMemcpyHtoD", "_v2_ptds"},
		"cuMemAllocAsync_ptsz":             {"cuMemAllocAsync", "_ptsz"},
		"nvmlDeviceGetTemperatureV":        {"nvmlDeviceGetTemperatureV", ""},
		"nvmlDeviceGetNvLinkRemoteInfo_v2": {"nvmlDeviceGetNvLinkRemoteInfo", "_v2"},
	} {
		base, tail := splitVariant(symbol)
		if diff := cmp.Diff(want, [2]string{base, tail}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", symbol, diff)
		}
	}
}

// take writes a list that reads back as what the header declares, under its version's name.
func TestTakeAddsAList(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, namesDir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, h := range []header{
		{version: "13010", names: []string{"cuFoo", "cuFoo_v2"}},
		{version: "14.0.1", names: []string{"nvmlFoo"}},
	} {
		if err := take(dir, []header{h}); err != nil {
			t.Fatal(err)
		}
	}
	names, err := readNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cuFoo", "cuFoo_v2", "nvmlFoo"}, sorted(names)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for _, file := range []string{"cuda-13.1.txt", "nvml-14.0.txt"} {
		if _, err := os.Stat(filepath.Join(dir, namesDir, file)); err != nil {
			t.Error(err)
		}
	}
	if err := take(dir, []header{{path: "cuda.h", names: []string{"cuFoo"}}}); err == nil {
		t.Error("a header without a version is taken")
	}
}
