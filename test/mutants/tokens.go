// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
)

// language is what has to be known of C and of Lua: how a text falls into tokens, and how a condition is said.
type language struct {
	token       *regexp.Regexp // with a group for what is skipped
	not, never  string
	ends        string // of a condition
	removed     string // what is in the place of a statement
	connectives []string
}

var (
	languageC = &language{
		token: regexp.MustCompile(`(?s)(\s+|//[^\n]*|/\*.*?\*/|(?:#[^\n]*\\\n)(?:[^\n]*\\\n)*[^\n]*|#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')` +
			`|[A-Za-z_]\w*|0x[0-9a-fA-F]+\w*|\d+[\w.]*|->|\+\+|--|<<=|>>=|<<|>>|[-+*/%&|^!=<>]=|&&|\|\||.`),
		not: "!", never: "0 && ", removed: ";", ends: ")", connectives: []string{"&&", "||"},
	}
	languageLua = &language{
		token: regexp.MustCompile(`(?s)(\s+|--[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')` +
			`|[A-Za-z_]\w*|\d+[\w.]*|\.\.\.?|[~=<>]=|.`),
		not: "not ", never: "false and ", removed: "", ends: "then", connectives: []string{"and", "or"},
	}
)

type lexeme struct {
	text       string
	start, end int
	depth      int // of parentheses and braces around it
}

func (l *language) split(text []byte) []lexeme {
	var all []lexeme
	depth := 0
	for _, at := range l.token.FindAllSubmatchIndex(text, -1) {
		if at[2] >= 0 && text[at[0]] != '"' && text[at[0]] != '\'' {
			continue
		}
		t := lexeme{text: string(text[at[0]:at[1]]), start: at[0], end: at[1]}
		if strings.Contains(")]}", t.text) {
			depth--
		}
		t.depth = depth
		if strings.Contains("([{", t.text) {
			depth++
		}
		all = append(all, t)
	}
	return all
}

type tokenFinder struct {
	*finder
	*language
	t []lexeme
}

func (f *finder) findTokens(l *language) {
	x := tokenFinder{f, l, l.split(f.text)}
	if l == languageC {
		x.eachFunctionC()
		return
	}
	f.in = "top"
	for i := range x.t {
		if x.t[i].text == "function" && x.is(i+1, isName) {
			f.in = x.t[i+1].text
			for j := i + 2; x.is(j, func(s string) bool { return s == "." || s == ":" }); j += 2 {
				f.in = x.t[j+1].text
			}
		}
		x.visit(i)
		x.statementLua(i)
	}
}

// Bodies of functions are what follows a closing parenthesis at depth 0.
func (x tokenFinder) eachFunctionC() {
	for i := 1; i < len(x.t); i++ {
		if x.t[i].text != "{" || x.t[i].depth != 0 || x.t[i-1].text != ")" {
			continue
		}
		for j := i - 1; j > 0; j-- {
			if x.t[j].text == "(" && x.t[j].depth == 0 {
				x.in = x.t[j-1].text
				break
			}
		}
		for i++; i < len(x.t) && x.t[i].depth > 0; i++ {
			x.visit(i)
			x.statementC(i)
		}
	}
}

var name = regexp.MustCompile(`^[A-Za-z_]\w*$`)

func isName(s string) bool { return name.MatchString(s) }

func (x tokenFinder) is(i int, what func(string) bool) bool {
	return i >= 0 && i < len(x.t) && what(x.t[i].text)
}

func (x tokenFinder) textAt(i int) string {
	if i < 0 || i >= len(x.t) {
		return ""
	}
	return x.t[i].text
}

// visit makes the faults of one token.
func (x tokenFinder) visit(i int) {
	t := x.t[i]
	before := x.textAt(i - 1)
	switch {
	case t.text == "if" || t.text == "elseif":
		x.condition(i)
	case t.text == "true" || t.text == "false":
		if before == "return" || before == "=" {
			x.swap(t)
		}
	case t.text == "+" || t.text == "-":
		if isName(before) && before != "return" || before == ")" || before == "]" || before != "" && before[0] >= '0' && before[0] <= '9' {
			x.swap(t)
		}
	case swaps[t.text] != "":
		x.swap(t)
	default:
		x.constant(i)
	}
}

func (x tokenFinder) swap(t lexeme) {
	to := swaps[t.text]
	if x.language == languageLua && to == "!=" {
		to = "~="
	}
	x.add(t.start, t.end, to, t.text+" becomes "+to)
}

// Beside a comparison, a sum or an assignment, or returned: as an argument a number mostly is a flag.
func (x tokenFinder) constant(i int) {
	beside := []string{"<", "<=", ">", ">=", "==", "!=", "~=", "+", "-", "*", "/", "%", "=", "+=", "-=", "return"}
	digits := strings.TrimRight(x.t[i].text, "uUlL")
	if !slices.Contains(beside, x.textAt(i-1)) && (x.textAt(i-1) == "," || !slices.Contains(beside, x.textAt(i+1))) {
		return
	}
	if to, ok := number(digits); ok {
		x.add(x.t[i].start, x.t[i].start+len(digits), to, digits+" becomes "+to)
	}
}

// close is the token that ends what begins at i: a parenthesis, or Lua's "then".
func (x tokenFinder) conditionEnd(i int) int {
	for j := i + 1; j < len(x.t); j++ {
		if x.t[j].text == x.ends && x.t[j].depth == x.t[i].depth {
			return j
		}
	}
	return -1
}

func (x tokenFinder) condition(i int) {
	last := x.conditionEnd(i)
	if last < 0 {
		return
	}
	start, end := x.t[i].end, x.t[last].start
	if x.language == languageC {
		start = x.t[i+1].end
	}
	source := string(x.text[start:end])
	open := ""
	if x.language == languageLua {
		source, open = strings.TrimSpace(source), " "
	}
	x.add(start, end, open+x.not+"("+source+")"+open, "condition negated")
	j := last + 1
	for x.textAt(j) == "{" {
		j++
	}
	if x.textAt(j) == "return" || x.textAt(j) == "continue" {
		x.add(start, end, open+x.never+"("+source+")"+open, "guard removed")
	}
}

var (
	keywords    = []string{"if", "else", "for", "while", "do", "switch", "case", "return", "goto", "break", "continue", "sizeof"}
	assignments = []string{"=", "++", "--", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>="}
)

// statementC removes a call or an assignment that begins at i.
func (x tokenFinder) statementC(i int) {
	before := x.textAt(i - 1)
	if slices.Contains(keywords, x.t[i].text) || !strings.Contains("{};)", before) && before != "else" || !x.is(i, isName) && x.t[i].text != "*" {
		return
	}
	if before == ")" && !x.closesCondition(i-1) {
		return
	}
	what := ""
	for j := i + 1; j < len(x.t) && x.t[j].depth >= x.t[i].depth; j++ {
		here := x.t[j].depth == x.t[i].depth
		switch text := x.t[j].text; {
		case here && text == ";":
			if what != "" {
				x.add(x.t[i].start, x.t[j].end, x.removed, what)
			}
			return
		case here && (text == "{" || text == ":"):
			return
		case j == i+1 && (isName(text) || text == "*"): // a declaration, or return and its like
			if x.t[i].text != "*" {
				return
			}
		case j == i+1 && text == "(":
			what = "call removed"
		case here && what == "" && slices.Contains(assignments, text):
			what = "assignment removed"
		}
	}
}

// Whether this parenthesis ends that of an if, a for or a while.
func (x tokenFinder) closesCondition(i int) bool {
	for j := i - 1; j > 0; j-- {
		if x.t[j].text == "(" && x.t[j].depth == x.t[i].depth {
			return slices.Contains([]string{"if", "for", "while"}, x.textAt(j-1))
		}
	}
	return false
}

var (
	luaCall   = regexp.MustCompile(`^[\w.:]+\(.*\)$`)
	luaAssign = regexp.MustCompile(`^[\w.\[\]]+( = .*[^{(,])$`)
)

// statementLua removes a call or an assignment that has a line of its own.
func (x tokenFinder) statementLua(i int) {
	start := x.t[i].start
	from := strings.LastIndexByte(string(x.text[:start]), '\n') + 1
	if strings.TrimSpace(string(x.text[from:start])) != "" {
		return
	}
	line, _, _ := strings.Cut(string(x.text[start:]), "\n")
	line, _, _ = strings.Cut(line, " -- ")
	line = strings.TrimSpace(line)
	balanced := strings.Count(line, "(") == strings.Count(line, ")") && strings.Count(line, "{") == strings.Count(line, "}")
	switch {
	case !balanced || strings.Contains(line, "function"):
	case luaCall.MatchString(line):
		x.add(start, start+len(line), x.removed, "call removed")
	case luaAssign.MatchString(line):
		x.add(start, start+len(line), x.removed, "assignment removed")
	}
}
