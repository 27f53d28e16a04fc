// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package shape holds the tree to what CONTRIBUTING.md says of its shape: how long a file and a
// function may be, and which package stands on which. `make lint` runs it.
package shape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

const (
	mostLines      = 400 // of a file
	mostOfFunction = 60  // with its first and its last line
	mostOfMacro    = 10  // below its name: no debugger stops in one
)

// longer are the files and functions that are one concern each, however long.
var longer = map[string]string{
	"test/interposer/account/reserve.c":    "what may be taken while it is in the driver, by whom, and who is killed there",
	"utilisation_is_that_of_own_processes": "one story: two jobs and then one, asked in every way that NVML has",
}

// sources are the files with such a name that git has, or would take.
func sources(t *testing.T, extensions ...string) (names []string) {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z")
	cmd.Dir = root
	listed, err := cmd.Output()
	if err != nil {
		t.Skipf("the sources are not in a git tree: %v", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(listed), "\x00"), "\x00") {
		if slices.Contains(extensions, filepath.Ext(name)) {
			names = append(names, name)
		}
	}
	return names
}

// A function begins and ends in the first column.
var (
	goFunction   = regexp.MustCompile(`^func .*[^}]$`)
	luaFunction  = regexp.MustCompile(`^(local +)?([\w.]+ *= *)?function\b.*\)$`)
	cBody        = regexp.MustCompile(`^\{$|^[A-Za-z_].*\) *\{$`)
	functionName = regexp.MustCompile(`(\w+)\(`)
	cOutside     = regexp.MustCompile(`^$|^#|[;}]$|\*/$`) // of a function's head
)

// begins says where the function begins of which this line is the first, or in C the one with the brace; -1: of none.
func begins(extension string, lines []string, at int) int {
	switch line := lines[at]; {
	case extension == ".go" && goFunction.MatchString(line), extension == ".lua" && luaFunction.MatchString(line):
		return at
	case (extension == ".c" || extension == ".h") && cBody.MatchString(line):
		for at > 0 && !cOutside.MatchString(lines[at-1]) {
			at--
		}
		return at
	}
	return -1
}

// nameIn is the function's name in its head.
func nameIn(head string) string {
	if found := functionName.FindStringSubmatch(head); found != nil {
		return found[1]
	}
	return ""
}

// tooLong names what is longer than it may be.
func tooLong(name, text string) (found []string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	extension := filepath.Ext(name)
	end := "}"
	if extension == ".lua" {
		end = "end"
	}
	began := -1
	for i, line := range lines {
		if line == end && began >= 0 {
			head := strings.Join(lines[began:min(began+3, i)], " ")
			if length := i - began + 1; length > mostOfFunction && longer[nameIn(head)] == "" {
				found = append(found, fmt.Sprintf("%s:%d: a function of %d lines, at most %d", name, began+1, length, mostOfFunction))
			}
			began = -1
		} else if first := begins(extension, lines, i); first >= 0 {
			began = first
		}
	}
	if strings.HasPrefix(name, "interposer/") {
		found = append(found, longMacros(name, lines)...)
	}
	if len(lines) > mostLines && longer[name] == "" {
		found = append(found, fmt.Sprintf("%s: %d lines, at most %d", name, len(lines), mostLines))
	}
	return found
}

// longMacros names the macros that should call a function.
func longMacros(name string, lines []string) (found []string) {
	for i := 0; i < len(lines); i++ {
		first := i
		for strings.HasPrefix(lines[first], "#define ") && strings.HasSuffix(lines[i], "\\") && i+1 < len(lines) {
			i++
		}
		if length := i - first; length > mostOfMacro {
			found = append(found, fmt.Sprintf("%s:%d: a macro of %d lines, at most %d", name, first+1, length, mostOfMacro))
		}
	}
	return found
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	names := sources(t, ".go", ".c", ".h", ".lua")
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and git was not told yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range tooLong(name, string(text)) {
			t.Error(found)
		}
	}
	if len(names) < 300 {
		t.Errorf("looked at %d files only", len(names))
	}
}

func TestWhatIsTooLongIsFound(t *testing.T) {
	body := func(lines int) string { return strings.Repeat("\tx;\n", lines) }
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"fits.go":                 {"package p\n\nfunc f() {\n" + body(58) + "}\n", 0},
		"long.go":                 {"package p\n\nfunc f() {\n" + body(59) + "}\n", 1},
		"twice.go":                {"func f() {\n" + body(59) + "}\n\nfunc (t T) g(\n\ta int,\n) {\n" + body(59) + "}\n", 2},
		"line.go":                 {"func f() { x() }\n" + body(80) + "}\n", 0},
		"fits.c":                  {"static int f(int a,\n\tint b)\n{\n" + body(56) + "}\n", 0},
		"long.c":                  {"int a;\n/* what it does */\nstatic int f(int a,\n\tint b)\n{\n" + body(57) + "}\n", 1},
		"same_line.h":             {"static inline int f(void) {\n" + body(59) + "}\n", 1},
		"interposer/long_macro.h": {"#define M \\\n" + strings.Repeat("\tx; \\\n", 10) + "\ty;\nint a;\n", 1},
		"interposer/fits_macro.h": {"#define M \\\n" + strings.Repeat("\tx; \\\n", 9) + "\ty;\n#define N 1\n", 0},
		"struct.h":                {"struct s {\n" + body(100) + "};\n", 0},
		"long.lua":                {"local function f(a)\n" + body(59) + "end\n", 1},
		"named.lua":               {"vgpu.f = function(a, b)\n" + body(59) + "end\n", 1},
		"fits.lua":                {"function vgpu.f(a)\n" + body(58) + "end\n", 0},
		"file.go":                 {"package p\n" + strings.Repeat("\n", 400), 1},
		"file_fits.go":            {"package p\n" + strings.Repeat("\n", 399), 0},

		"test/interposer/account/reserve.c": {strings.Repeat("\n", 401), 0},
		"interposer/account/reserve.c":      {strings.Repeat("\n", 401), 1},
		"story.c":                           {"static void utilisation_is_that_of_own_processes(void)\n{\n" + body(60) + "}\n", 0},
	} {
		if found := tooLong(name, c.text); len(found) != c.want {
			t.Errorf("%s: %v, want %d", name, found, c.want)
		}
	}
}
