// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
)

func printJSON(out io.Writer, value any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(out, escaped(text.String()))
	return err
}

// escaped is JSON in which nothing commands a terminal: encoding/json writes what lies above ASCII as it is, and DEL.
func escaped(text string) string {
	var safe strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			safe.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&safe, "\\u%04x", unit)
			}
		}
	}
	return safe.String()
}

// paint colours a text for a terminal. In tables only the last column may be painted: the escape
// codes have a width for the one who aligns them.
type paint bool

// painter colours on a terminal, unless NO_COLOR is set.
func painter(out io.Writer) paint {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// columnsOf is how wide a terminal is; 80 if it does not say, or is none.
func columnsOf(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

func (p paint) good(text string) string { return p.with("32", text) }
func (p paint) bad(text string) string  { return p.with("31", text) }
func (p paint) bold(text string) string { return p.with("1", text) }

func (p paint) with(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// age is a duration as squeue prints it: 1-02:03:04, 2:03:04, 3:04.
func age(d time.Duration) string { return jobreport.Length(d) }

// userNames are those that were asked for already: a directory of the site's may have to be asked for each.
var userNames sync.Map

// userName is the name of a user, or its number if it has none here.
func userName(uid uint32) string {
	if name, asked := userNames.Load(uid); asked {
		return name.(string)
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	userNames.Store(uid, name)
	return name
}

// known prints a number that may not be known to who asks.
func known[T int64 | uint64](value *T) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprint(*value)
}

// cores prints SM percent: 0 is no cap.
func cores(percent int) string {
	if percent == 0 {
		return "no cap"
	}
	return fmt.Sprintf("%d%%", percent)
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
