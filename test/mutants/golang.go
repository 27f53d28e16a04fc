// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

type goFinder struct {
	*finder
	set *token.FileSet
}

func (f *finder) findGo() error {
	g := goFinder{f, token.NewFileSet()}
	tree, err := parser.ParseFile(g.set, f.file, f.text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, declaration := range tree.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		g.in = function.Name.Name
		ast.Inspect(function.Body, g.visit)
	}
	return nil
}

func (g goFinder) at(p token.Pos) int                { return g.set.Position(p).Offset }
func (g goFinder) source(n ast.Node) string          { return string(g.text[g.at(n.Pos()):g.at(n.End())]) }
func (g goFinder) put(n ast.Node, text, what string) { g.add(g.at(n.Pos()), g.at(n.End()), text, what) }

// visit says whether what is below the node is to be changed too.
func (g goFinder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		op := n.Op.String()
		if to, ok := swaps[op]; ok && !isText(n.X) && !isText(n.Y) {
			g.add(g.at(n.OpPos), g.at(n.OpPos)+len(op), to, op+" becomes "+to)
		}
		g.constant(n.X)
		g.constant(n.Y)
	case *ast.IfStmt:
		g.condition(n)
	case *ast.ExprStmt:
		if isLog(n.X) {
			return false
		}
		if _, ok := n.X.(*ast.CallExpr); ok {
			g.put(n, "if false { "+g.source(n)+" }", "call removed")
		}
	case *ast.AssignStmt:
		g.assignment(n)
	case *ast.IncDecStmt:
		g.put(n, "if false { "+g.source(n)+" }", "statement removed")
	case *ast.DeferStmt:
		g.put(n, "if false { "+g.source(n)+" }", "defer removed")
	case *ast.ReturnStmt:
		g.results(n)
	case *ast.CallExpr:
		return !isLog(n)
	}
	return true
}

func (g goFinder) condition(n *ast.IfStmt) {
	source := g.source(n.Cond)
	g.put(n.Cond, "!("+source+")", "condition negated")
	if n.Else == nil && len(n.Body.List) > 0 {
		if _, leaves := n.Body.List[len(n.Body.List)-1].(*ast.ReturnStmt); leaves {
			g.put(n.Cond, "false && ("+source+")", "guard removed")
		}
	}
}

func (g goFinder) assignment(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE {
		return
	}
	if op := n.Tok.String(); swaps[op] != "" && !isText(n.Rhs[0]) {
		g.add(g.at(n.TokPos), g.at(n.TokPos)+len(op), swaps[op], op+" becomes "+swaps[op])
	}
	for _, x := range n.Rhs {
		g.constant(x)
	}
	if name, ok := n.Lhs[0].(*ast.Ident); !ok || name.Name != "_" {
		g.put(n, "if false { "+g.source(n)+" }", "assignment removed")
	}
}

func (g goFinder) results(n *ast.ReturnStmt) {
	for i, x := range n.Results {
		g.constant(x)
		if name, ok := x.(*ast.Ident); ok && (name.Name == "true" || name.Name == "false") {
			g.put(x, swaps[name.Name], name.Name+" becomes "+swaps[name.Name])
		}
		if i == len(n.Results)-1 && isError(x) {
			g.put(x, "nil", "error dropped")
		}
	}
}

func (g goFinder) constant(x ast.Expr) {
	literal, ok := x.(*ast.BasicLit)
	if !ok || literal.Kind != token.INT {
		return
	}
	if to, ok := number(literal.Value); ok {
		g.put(x, to, literal.Value+" becomes "+to)
	}
}

func isText(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.BasicLit:
		return x.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(x.X) || isText(x.Y)
	}
	return false
}

// callee is the text of what is called, "fmt.Errorf".
func callee(x ast.Expr) string {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		switch of := f.X.(type) {
		case *ast.Ident:
			return of.Name + "." + f.Sel.Name
		case *ast.SelectorExpr:
			return of.Sel.Name + "." + f.Sel.Name
		}
	}
	return ""
}

func isError(x ast.Expr) bool {
	if name, ok := x.(*ast.Ident); ok {
		return name.Name == "err" || strings.HasPrefix(name.Name, "err") && len(name.Name) > 3 && name.Name[3] < 'a'
	}
	called := callee(x)
	return called == "fmt.Errorf" || called == "errors.New" || called == "errors.Join"
}

// What goes to a log is there for people; no test holds it to its words.
func isLog(x ast.Expr) bool {
	of, method, _ := strings.Cut(callee(x), ".")
	switch method {
	case "Debug", "Info", "Warn", "Error", "Trace":
		return strings.HasPrefix(strings.ToLower(of), "log")
	}
	return false
}
