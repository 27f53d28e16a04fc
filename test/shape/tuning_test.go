// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tuned are the packages whose measured and chosen numbers stand in one file of each, as those of the interposer in its tuning.h.
var tuned = []string{"internal/keeper", "internal/share", "vgpud"}

// isDuration says whether an expression is time.Second or the like.
func isDuration(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "time" && strings.Contains(" Nanosecond Microsecond Millisecond Second Minute Hour ", " "+s.Sel.Name+" ")
}

// isTuning says whether a constant has a value that somebody measured or chose: a duration, or a number that is neither a flag nor one of a list.
func isTuning(e ast.Expr) (is bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if v, ok := n.(ast.Expr); ok && isDuration(v) {
			is = true
		}
		if v, ok := n.(*ast.BasicLit); ok && (v.Kind == token.FLOAT || v.Kind == token.INT && len(v.Value) > 1) {
			is = true
		}
		return true
	})
	return is
}

// untuned names what a file has of such numbers that is not in the package's tuning.go: constants, and durations in the middle of the code. What converts
// units divides by one, or multiplies what is no number.
func untuned(name, text string) (found []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s:%d: %s stands in no tuning.go", name, set.Position(n.Pos()).Line, what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if isTuning(value) {
					add(n, n.Names[i].Name)
					return false
				}
			}
		case *ast.CallExpr:
			for _, argument := range n.Args {
				if isDuration(argument) && !isConversion(n) {
					add(argument, "a duration")
				}
			}
		case *ast.BinaryExpr:
			_, left := n.X.(*ast.BasicLit)
			if n.Op == token.MUL && left && isDuration(n.Y) {
				add(n, "a duration")
			}
			if (n.Op == token.LSS || n.Op == token.GTR || n.Op == token.LEQ || n.Op == token.GEQ || n.Op == token.ADD || n.Op == token.SUB) && isDuration(n.Y) {
				add(n, "a duration")
			}
		}
		return true
	})
	return found, nil
}

// isConversion is of Truncate and Round, whose duration is a unit.
func isConversion(c *ast.CallExpr) bool {
	s, ok := c.Fun.(*ast.SelectorExpr)
	return ok && (s.Sel.Name == "Truncate" || s.Sel.Name == "Round")
}

func TestMeasuredNumbersStandInOneFile(t *testing.T) {
	for _, folder := range tuned {
		names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", folder, names, err)
		}
		for _, name := range names {
			if filepath.Base(name) == "tuning.go" || strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found, err := untuned(name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range found {
				t.Error(strings.TrimPrefix(line, root+"/"))
			}
		}
	}
}

func TestANumberElsewhereIsFound(t *testing.T) {
	for body, want := range map[string]int{
		"const each = 5 * time.Second":                                1,
		"const each = time.Minute":                                    1,
		"const part = 0.5":                                            1,
		"const most = 100":                                            1,
		"const (\n\ta = iota\n\tb\n)":                                 0,
		`const word = "w"`:                                            0,
		"const one = 1":                                               0,
		"func f() { time.Sleep(time.Millisecond) }":                   1,
		"func f() { time.Sleep(3 * time.Millisecond) }":               1,
		"func f(d time.Duration) bool { return d > time.Second }":     1,
		"func f(d time.Duration) int { return int(d / time.Second) }": 0,
		"func f(us int) time.Duration { return time.Duration(us) * time.Microsecond }":  0,
		"func f(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }": 0,
	} {
		found, err := untuned("a.go", "package a\n\nimport \"time\"\n\n"+body+"\n")
		if err != nil || len(found) != want {
			t.Errorf("%s: %v, %v", body, found, err)
		}
	}
}
