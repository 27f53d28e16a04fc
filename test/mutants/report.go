// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// report prints what was not noticed and the table, and says whether enough was.
func report(samples []area, b *book, reasons map[string]string) bool {
	type row struct{ made, noticed, timeouts, missed, equivalent int }
	var rows []row
	var sum row
	fmt.Println()
	for _, a := range samples {
		var r row
		for _, m := range a.order {
			if r.made == a.wanted {
				break
			}
			if _, ok := reasons[m.key()]; ok {
				r.made++
				r.equivalent++
				continue
			}
			v, ok := b.get(m)
			if !ok || v.Verdict == unbuilt {
				continue
			}
			r.made++
			switch v.Verdict {
			case noticed:
				r.noticed++
			case byTime:
				r.timeouts++
			case missed:
				r.missed++
				fmt.Printf("not noticed: %s\n    %s\n", m, m.Line)
			}
		}
		rows = append(rows, r)
		sum.made += r.made
		sum.noticed += r.noticed
		sum.timeouts += r.timeouts
		sum.missed += r.missed
		sum.equivalent += r.equivalent
	}
	fmt.Printf("\n%-12s %6s %8s %10s %12s %11s %6s\n", "area", "made", "noticed", "by timeout", "not noticed", "equivalent", "")
	line := func(name string, r row) float64 {
		share := 1.0
		if r.made > r.equivalent {
			share = float64(r.noticed+r.timeouts) / float64(r.made-r.equivalent)
		}
		fmt.Printf("%-12s %6d %8d %10d %12d %11d %5.1f%%\n", name, r.made, r.noticed, r.timeouts, r.missed, r.equivalent, 100*share)
		return share
	}
	for i, a := range samples {
		line(a.name, rows[i])
	}
	return line("all", sum) >= enough
}
