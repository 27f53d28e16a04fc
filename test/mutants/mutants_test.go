// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// made lists the faults of a source as "function: what → the line with it".
func made(t *testing.T, name, text string) []string {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := find(root, name)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		changed := string(m.apply([]byte(text)))
		if changed == text {
			t.Errorf("%s changes nothing", m)
		}
		line := strings.Split(changed, "\n")[m.Number-1]
		got = append(got, strings.TrimSpace(m.In+": "+m.What+" → "+strings.TrimSpace(line)))
	}
	return got
}

func same(t *testing.T, got []string, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), got); diff != "" {
		t.Error(diff)
	}
}

func TestFaultsOfC(t *testing.T) {
	same(t, made(t, "a.c", `#define LIMIT 5 < 6
static int table[2] = {1, 2}; /* if (a < b) */
static int f(int a, const char *b)
{
	int n = 0;

	if (a < 3 && b != 0)
		return 1;
	n = a + 1;
	g(a, "x < y", 1);
	return n;
}
`), `
f: 0 becomes 1 → int n = 1;
f: condition negated → if (!(a < 3 && b != 0))
f: guard removed → if (0 && (a < 3 && b != 0))
f: < becomes <= → if (a <= 3 && b != 0)
f: 3 becomes 4 → if (a < 4 && b != 0)
f: && becomes || → if (a < 3 || b != 0)
f: != becomes == → if (a < 3 && b == 0)
f: 0 becomes 1 → if (a < 3 && b != 1)
f: 1 becomes 0 → return 0;
f: assignment removed → ;
f: + becomes - → n = a - 1;
f: 1 becomes 0 → n = a + 0;
f: call removed → ;`)
}

func TestFaultsOfGo(t *testing.T) {
	same(t, made(t, "a.go", `package a

func f(a int, log logger) (int, error) {
	log.Info("a", "b", a == 1)
	if err := g(); err != nil {
		return 0, fmt.Errorf("g: %w", err)
	}
	a -= 2
	s := "x" + "y"
	h(s)
	return a, nil
}
`), `
f: condition negated → if err := g(); !(err != nil) {
f: guard removed → if err := g(); false && (err != nil) {
f: != becomes == → if err := g(); err == nil {
f: 0 becomes 1 → return 1, fmt.Errorf("g: %w", err)
f: error dropped → return 0, nil
f: assignment removed → if false { a -= 2 }
f: -= becomes += → a += 2
f: 2 becomes 3 → a -= 3
f: call removed → if false { h(s) }`)
}

func TestFaultsOfLua(t *testing.T) {
	same(t, made(t, "a.lua", `-- if a == b then
local function f(a)
	if a ~= 1 and not b then return nil end
	refuse("a == b", a)
	c.d = a
	return true
end
`), `
f: condition negated → if not (a ~= 1 and not b) then return nil end
f: guard removed → if false and (a ~= 1 and not b) then return nil end
f: ~= becomes == → if a == 1 and not b then return nil end
f: 1 becomes 0 → if a ~= 0 and not b then return nil end
f: and becomes or → if a ~= 1 or not b then return nil end
f: call removed →
f: assignment removed →
f: true becomes false → return false`)
}

// What was judged, or listed as equivalent, stays so where other lines come and go.
func TestAMutantIsKnownWhereverItsLineStands(t *testing.T) {
	const body = "static int f(int a)\n{\n\tif (a < 3)\n\t\treturn 1;\n\tif (a < 3)\n\t\treturn 2;\n\treturn 0;\n}\n"
	keys := func(text string) (keys []string) {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "a.c"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		found, err := find(root, "a.c")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found {
			keys = append(keys, m.key()+m.rank("1"))
		}
		return keys
	}
	before := keys(body)
	if diff := cmp.Diff(before, keys("/* new */\nstatic int g(void)\n{\n\treturn f(x);\n}\n\n"+strings.ReplaceAll(body, "\t", "    "))); diff != "" {
		t.Error(diff)
	}
	seen := map[string]bool{}
	for _, key := range before {
		if seen[key] {
			t.Errorf("two mutants are %q", key)
		}
		seen[key] = true
	}
}

func TestReasonsAreReadAndAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "equivalent.txt")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("# what this is\n\na.c f\nif (a < 3)\n< becomes <=\nit is never 3,\nas g says\n")
	got, err := readEquivalents(path)
	if diff := cmp.Diff(map[string]string{"a.c\tf\tif (a < 3)\t< becomes <=": "it is never 3, as g says"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	write("a.c f\nif (a < 3)\n< becomes <=\n")
	if _, err := readEquivalents(path); err == nil {
		t.Error("a mutant without a reason is believed to be equivalent")
	}
}

func TestABookGoesOnWhereItWasKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "verdicts")
	b, err := openBook(path, func(verdict) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []verdict{{Key: "a", Verdict: missed}, {Key: "b", Verdict: noticed}, {Key: "a", Verdict: noticed}, {Key: "c", Verdict: missed}} {
		if err := b.put(v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.file.WriteString(`{"mutant":"d","verd`); err != nil {
		t.Fatal(err)
	}
	b, err = openBook(path, func(v verdict) bool { return v.Verdict == missed })
	if err != nil {
		t.Fatal(err)
	}
	if len(b.known) != 2 || b.known["a"].Verdict != noticed || b.known["b"].Verdict != noticed {
		t.Errorf("known: %v", b.known)
	}
}
