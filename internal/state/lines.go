// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"math"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Every prolog and every epilog reads all slices of the node, and encoding/json takes microseconds for each. What encode
// writes is read here in a tenth of a microsecond. Nothing else is: at the first byte that encode would not have
// written there decodeOurs gives up, and encoding/json says what the file is.

// What stands around the slices.
const (
	headerBoot   = `{"version":1,"boot_id":"`
	headerSum    = `","checksum":"`
	headerSlices = "\",\n\"slices\":"
	listBegins   = "[\n"
	listEnds     = "\n]"
	trailer      = "}\n"
	leastLine    = 100 // bytes, less than any slice takes
)

// decodeOurs reads a file that encode wrote and nobody has changed.
func decodeOurs(data []byte) (image, bool) {
	f, ok := cutFile(data)
	if !ok || f.Checksum != f.sum() {
		return image{}, false
	}
	i := image{State: State{BootID: f.BootID}}
	i.Slices, i.lines, ok = cutSlices(f.Slices)
	return i, ok
}

// cutFile takes such a file apart.
func cutFile(data []byte) (file, bool) {
	rest, ours := bytes.CutPrefix(data, []byte(headerBoot))
	boot, rest, hasSum := bytes.Cut(rest, []byte(headerSum))
	sum, rest, hasSlices := bytes.Cut(rest, []byte(headerSlices))
	slices, ends := bytes.CutSuffix(rest, []byte(trailer))
	return file{Version: Version, BootID: string(boot), Checksum: string(sum), Slices: slices},
		ours && hasSum && hasSlices && ends && plain(boot)
}

// cutSlices reads the list of slices that encode wrote, and returns each one's line beside it.
func cutSlices(list []byte) (slices []Slice, lines [][]byte, ok bool) {
	rest, begins := bytes.CutPrefix(list, []byte(listBegins))
	rest, ends := bytes.CutSuffix(rest, []byte(listEnds))
	if !begins || !ends {
		return nil, nil, string(list) == "["+listEnds
	}
	count := bytes.Count(rest, []byte{'\n'}) + 1
	if count > len(rest)/leastLine { // it would take memory that nothing needs
		return nil, nil, false
	}
	slices, lines = make([]Slice, count, count+1), make([][]byte, count, count+1) // most callers add one
	var devices names
	for i := range count {
		line, others, more := bytes.Cut(rest, []byte{'\n'})
		if more {
			line, ok = bytes.CutSuffix(line, []byte{','})
			if !ok {
				return nil, nil, false
			}
		}
		if !cutSlice(line, &slices[i], &devices) || !slices[i].holds() {
			return nil, nil, false
		}
		lines[i], rest = line, others
	}
	return slices, lines, true
}

// cutSlice reads one line. The names of the GPUs are kept in devices, once each.
func cutSlice(line []byte, s *Slice, devices *names) bool {
	c := cutter{line: line}
	s.Job = uint32(c.number(`{"job":`, 0, math.MaxUint32))
	s.Restart = int(c.number(`,"restart":`, math.MinInt, math.MaxInt))
	s.UID = uint32(c.number(`,"uid":`, 0, math.MaxUint32))
	s.Since = c.time(`,"since":"`)
	if c.finds(`,"turns_layout":`) {
		s.Turns = uint32(c.number("", 0, math.MaxUint32))
	}
	s.Elastic = c.finds(`,"elastic":true`)
	if c.finds(`,"ends":"`) {
		s.Ends = c.time("")
	}
	s.Device = devices.uuid(&c)
	s.Index = device.NVMLIndex(c.number(`,"nvml_index":`, math.MinInt, math.MaxInt))
	s.Minor = device.Minor(c.number(`,"minor":`, math.MinInt, math.MaxInt))
	s.MemMiB = c.number(`,"mem_mib":`, math.MinInt64, math.MaxInt64)
	s.SMPercent = int(c.number(`,"sm_percent":`, math.MinInt, math.MaxInt))
	if c.finds(`,"most_mib":`) {
		s.MostMiB = c.number("", math.MinInt64, math.MaxInt64)
	}
	return c.finds("}") && c.at == len(line) && !c.failed
}

// cutter takes a line apart from its beginning. Once something is not as encode writes it, it has failed.
type cutter struct {
	line   []byte
	at     int
	failed bool
}

// finds goes beyond the text if it comes next.
func (c *cutter) finds(text string) bool {
	end := c.at + len(text)
	if end > len(c.line) || string(c.line[c.at:end]) != text {
		return false
	}
	c.at = end
	return true
}

// number is the one after this text. Numbers of more digits than any here has are left to encoding/json.
func (c *cutter) number(after string, least, most int64) (n int64) {
	if !c.finds(after) {
		c.failed = true
		return 0
	}
	negative := c.finds("-")
	first := c.at
	for ; c.at < len(c.line) && c.at < first+18 && '0' <= c.line[c.at] && c.line[c.at] <= '9'; c.at++ {
		n = 10*n + int64(c.line[c.at]-'0')
	}
	if c.at == first || c.line[first] == '0' && (negative || c.at > first+1) {
		c.failed = true
	}
	if negative {
		n = -n
	}
	c.failed = c.failed || n < least || n > most
	return n
}

// text is what stands between this text and the next quote.
func (c *cutter) text(after string) []byte {
	if !c.finds(after) {
		c.failed = true
		return nil
	}
	length := bytes.IndexByte(c.line[c.at:], '"')
	if length < 0 {
		c.failed = true
		return nil
	}
	text := c.line[c.at : c.at+length]
	c.at += length + 1
	return text
}

func (c *cutter) time(after string) (t time.Time) {
	if err := t.UnmarshalText(c.text(after)); err != nil { // encoding/json does the same
		c.failed = true
	}
	return t
}

// maxNames is more GPUs than a node has.
const maxNames = 64

// names are those of GPUs that have come up, so that each is kept once.
type names struct {
	known []device.UUID
	last  int
}

// uuid is the one that comes next in the line.
func (n *names) uuid(c *cutter) device.UUID {
	text := c.text(`,"device":"`)
	for range n.known { // slices are spread over the GPUs, so the one after the last is likely
		if n.last = n.last + 1; n.last >= len(n.known) {
			n.last = 0
		}
		if string(text) == string(n.known[n.last]) {
			return n.known[n.last]
		}
	}
	c.failed = c.failed || !plain(text)
	uuid := device.UUID(text)
	if len(n.known) < maxNames {
		n.last, n.known = len(n.known), append(n.known, uuid)
	}
	return uuid
}

// plain text means itself between quotes.
func plain(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b > '~' || b == '"' || b == '\\' {
			return false
		}
	}
	return true
}
