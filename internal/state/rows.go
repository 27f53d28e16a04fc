// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Every prolog and every epilog reads all slices of the node, so a slice is a row of numbers, which takes a twelfth of a microsecond.
// It is JSON all the same, for people and their tools; what it says in which column stands above it.

// columns are what the numbers of a row are; zeros at its end are left out. "gpu" counts the lines of "gpus", from 0; "since_ms" and "ends" are
// milliseconds and seconds since 1970, 0 where it is not known; "elastic" is 0 or 1, "priority" 1 for latency and -1 for batch.
const (
	firstColumns = `"columns":["job","uid","gpu","mem_mib","since_ms","turns_layout","sm_percent","ends","restart","elastic","most_mib"`
	columns      = firstColumns + "],\n"
	// allColumns are written where a slice needs the last of them. Builds from before it take such a file for a damaged one, and make their
	// state from the grants; any other file is the same for both.
	allColumns = firstColumns + `,"priority"],` + "\n"
)

const (
	columnJob = iota
	columnUID
	columnGPU
	columnMemMiB
	columnSince
	columnVgpud
	columnSMPercent
	columnEnds
	columnRestart
	columnElastic
	columnMostMiB
	columnPriority
	numbers // in a row
	fewest  = columnMemMiB + 1
)

// What else stands around the rows.
const (
	gpusBegin   = "\"gpus\":["
	slicesBegin = "\"slices\":["
	lineEnds    = ",\n"
	listEnds    = "\n]"
	bodyEnds    = "}\n"
	leastRow    = len("[1,0,0,1]")
)

// gpu is a line of "gpus": what slices on it repeat.
type gpu struct {
	Device device.UUID      `json:"device"`
	Index  device.NVMLIndex `json:"nvml_index"`
	Minor  device.Minor     `json:"minor"`
}

// maxGPUs is more GPUs than a node has, and the parts of them. A table beyond it is made anew, without those that nobody holds.
const maxGPUs = 128

// places numbers what comes up, from 0.
type places[K comparable] struct {
	keys []K
	last [hints]uint8
}

const hints = 64

// of is a key's number. The hint is a number that this key mostly has and others mostly have not.
func (p *places[K]) of(key K, hint uint) int {
	last := &p.last[hint%hints]
	if at := int(*last); at < len(p.keys) && p.keys[at] == key {
		return at
	}
	at := slices.Index(p.keys, key)
	if at < 0 {
		p.keys = append(p.keys, key)
		at = len(p.keys) - 1
	}
	*last = uint8(at) // where it is cut, nothing is found there
	return at
}

// appendRow writes a slice as a row, and enters its GPU if need be: rows that were read stay right as long as gpus only grow.
func appendRow(text []byte, s *Slice, gpus *places[gpu]) []byte {
	r := row{columnJob: int64(s.Job), columnUID: int64(s.UID), columnMemMiB: s.MemMiB, columnSince: int64(s.Since), columnVgpud: int64(s.Vgpud),
		columnSMPercent: int64(s.SMPercent), columnEnds: s.Ends, columnRestart: int64(s.Restart), columnMostMiB: s.MostMiB,
		columnPriority: int64(s.Priority)}
	r[columnGPU] = int64(gpus.of(gpu{Device: s.Device, Index: s.Index, Minor: s.Minor}, uint(s.Index)))
	if s.Elastic {
		r[columnElastic] = 1
	}
	count := numbers
	for count > fewest && r[count-1] == 0 {
		count--
	}
	before := byte('[')
	for column := range count {
		text = strconv.AppendInt(append(text, before), r[column], 10)
		before = ','
	}
	return append(text, ']')
}

// errRows is of a file whose checksum is right, and which this program has not written.
var errRows = errors.New("its content is not of the form that goes with its version")

// cutBody reads what stands behind the checksum.
func cutBody(body []byte) (i image, err error) {
	rest, begins := bytes.CutPrefix(body, []byte(gpusBegin))
	list, rows, named := bytes.Cut(rest, []byte(listEnds+lineEnds+columns+slicesBegin))
	if !named {
		list, rows, named = bytes.Cut(rest, []byte(listEnds+lineEnds+allColumns+slicesBegin))
	}
	rows, ends := bytes.CutSuffix(rows, []byte(listEnds+bodyEnds))
	if !begins || !named || !ends {
		return image{}, errRows
	}
	if err := json.Unmarshal(append(append([]byte{'['}, list...), ']'), &i.gpus.keys); err != nil {
		return image{}, errRows
	}
	i.list = rows
	i.Slices, i.rows, err = cutRows(rows, i.gpus.keys)
	return i, err
}

// cutRows reads the rows, and says where each of them stands.
func cutRows(list []byte, gpus []gpu) (held []Slice, rows []span, err error) {
	count := bytes.Count(list, []byte{'\n'})
	if count > len(list)/leastRow { // it would take memory that nothing needs
		return nil, nil, errRows
	}
	held, rows = make([]Slice, count, count+1), make([]span, count, count+1) // most callers add one
	var r row
	at, between := 0, "\n"
	for i := range count {
		if at += len(between); at > len(list) || string(list[at-len(between):at]) != between {
			return nil, nil, errRows
		}
		end, ok := r.cut(list, at)
		if !ok || !r.into(&held[i], gpus) {
			return nil, nil, errRows
		}
		rows[i], at, between = span{uint32(at), uint32(end)}, end, lineEnds
	}
	if at != len(list) {
		return nil, nil, errRows
	}
	return held, rows, nil
}

// row is the numbers of a row.
type row [numbers]int64

// cut reads the row that begins here, as appendRow writes it, and says where it ends.
func (r *row) cut(text []byte, at int) (end int, ok bool) {
	*r = row{}
	if at >= len(text) || text[at] != '[' {
		return 0, false
	}
	for column := range numbers {
		at++ // the bracket, or a comma
		negative := at < len(text) && text[at] == '-'
		if negative {
			at++
		}
		n, end := digits(text, at)
		if end == at || end == len(text) || end-at > maxDigits || n > math.MaxInt64 || text[at] == '0' && (negative || end-at > 1) {
			return 0, false
		}
		if at = end; negative {
			n = -n
		}
		r[column] = int64(n)
		if text[at] != ',' {
			return at + 1, text[at] == ']' && column+1 >= fewest && (column+1 == fewest || r[column] != 0)
		}
	}
	return 0, false
}

const maxDigits = len("9223372036854775807")

// digits is the number that begins here, and where it ends.
func digits(text []byte, at int) (n uint64, end int) {
	for end = at; end < len(text) && text[end]-'0' <= 9; end++ {
		n = 10*n + uint64(text[end]-'0')
	}
	return n, end
}

// into says what the row means, unless it is no slice.
func (r *row) into(s *Slice, gpus []gpu) bool {
	if uint64(r[columnJob]|r[columnUID]|r[columnVgpud]) > math.MaxUint32 || uint64(r[columnElastic]) > 1 || !isPriority(r[columnPriority]) || uint64(r[columnGPU]) >= uint64(len(gpus)) {
		return false
	}
	on := &gpus[r[columnGPU]]
	s.Job, s.Restart, s.UID = uint32(r[columnJob]), int(r[columnRestart]), uint32(r[columnUID])
	s.Since, s.Ends = Millis(r[columnSince]), r[columnEnds]
	s.Vgpud, s.Elastic = uint32(r[columnVgpud]), r[columnElastic] == 1
	s.Device, s.Index, s.Minor = on.Device, on.Index, on.Minor
	s.MemMiB, s.SMPercent, s.MostMiB = r[columnMemMiB], int(r[columnSMPercent]), r[columnMostMiB]
	s.Priority = device.Priority(r[columnPriority])
	return s.holds()
}

func isPriority(number int64) bool {
	return number == int64(int8(number)) && device.Priority(number).IsKnown()
}

// columnsOf are those that some slices need.
func columnsOf(held []Slice) string {
	for i := range held {
		if held[i].Priority != device.PriorityNormal {
			return allColumns
		}
	}
	return columns
}
