// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// family is one metric: its name, its type, what it is, and its labels.
type family struct {
	name, kind, help string
	labels           []string
}

// exposition is families by name, and writes them in Prometheus' text format, version 0.0.4. client_golang, which does
// that too, was a third of each start of vgpuctl: decision 047. The tests hold this against it.
type exposition map[string]*block

// block is what is said of one family.
type block struct {
	family
	order  []int // of its labels, by name
	series []series
}

type series struct {
	name, labels, value string
}

func (e exposition) of(f family) *block {
	b := e[f.name]
	if b == nil {
		b = &block{family: f, order: make([]int, len(f.labels))}
		for i := range b.order {
			b.order[i] = i
		}
		slices.SortFunc(b.order, func(i, j int) int { return cmp.Compare(f.labels[i], f.labels[j]) })
		e[f.name] = b
	}
	return b
}

// add takes as many values of labels as the family has labels.
func (e exposition) add(f family, value float64, labels ...string) {
	b := e.of(f)
	var text strings.Builder
	length := 2
	for i := range b.order {
		length += len(f.labels[i]) + len(labels[i]) + len(`="",`)
	}
	text.Grow(length)
	for n, i := range b.order {
		if n == 0 {
			text.WriteByte('{')
		} else {
			text.WriteByte(',')
		}
		text.WriteString(f.labels[i] + `="`)
		_, _ = escapeLabel.WriteString(&text, strings.ToValidUTF8(labels[i], "?")) // memory takes it
		text.WriteByte('"')
	}
	if text.Len() > 0 {
		text.WriteByte('}')
	}
	b.series = append(b.series, series{f.name, text.String(), number(value)})
}

func (e exposition) addHistogram(f family, h Histogram) {
	b := e.of(f)
	bucket := func(most string, count uint64) {
		b.series = append(b.series, series{f.name + "_bucket", `{le="` + most + `"}`, strconv.FormatUint(count, 10)})
	}
	for _, most := range slices.Sorted(maps.Keys(h.Buckets)) {
		bucket(number(most), h.Buckets[most])
	}
	bucket("+Inf", h.Count)
	b.series = append(b.series, series{f.name + "_sum", "", number(h.Seconds)}, series{f.name + "_count", "", strconv.FormatUint(h.Count, 10)})
}

// text has the families and their series in order, each series once.
func (e exposition) text() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(e)) {
		b := e[name]
		out.WriteString("# HELP " + name + " " + escapeHelp.Replace(b.help) + "\n# TYPE " + name + " " + b.kind + "\n")
		if b.kind != histogram { // whose order is that of its buckets
			slices.SortStableFunc(b.series, func(x, y series) int { return cmp.Compare(x.labels, y.labels) })
		}
		for i, s := range b.series {
			if i == 0 || s.name != b.series[i-1].name || s.labels != b.series[i-1].labels {
				out.WriteString(s.name + s.labels + " " + s.value + "\n")
			}
		}
	}
	return out.Bytes()
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
