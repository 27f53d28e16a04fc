// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var colours = []color.NRGBA{
	{R: 0x77, G: 0x77, B: 0x77, A: 255}, {R: 0x1f, G: 0x5f, B: 0xa8, A: 255}, {R: 0x5f, G: 0xa8, B: 0xd8, A: 255}, {R: 0xc0, G: 0x2a, B: 0x2a, A: 255},
	{R: 0xe0, G: 0x8a, B: 0x1a, A: 255}, {R: 0x2a, G: 0x8a, B: 0x3a, A: 255}, {R: 0x8a, G: 0x4a, B: 0xa8, A: 255}, {R: 0xc0, G: 0x7a, B: 0xa0, A: 255},
}

// drawTo draws how much of the GPUs' time is granted, and how many jobs wait, over the trace: a point for each hour.
func drawTo(path string, results []result) error {
	granted, waiting := strip("GPU time granted, %"), strip("jobs that wait")
	for i, r := range results {
		var above, below plotter.XYs
		for h, hour := range r.Hours {
			above = append(above, plotter.XY{X: float64(h) + 0.5, Y: 100 * hour.Granted})
			below = append(below, plotter.XY{X: float64(h) + 0.5, Y: hour.Waiting})
		}
		for _, one := range []struct {
			plot   *plot.Plot
			points plotter.XYs
		}{{granted, above}, {waiting, below}} {
			line, err := plotter.NewLine(one.points)
			if err != nil {
				return fmt.Errorf("draw %s: %w", r.Policy, err)
			}
			line.Color, line.Width = colours[i%len(colours)], vg.Points(1.4)
			one.plot.Add(line)
			if one.plot == waiting {
				one.plot.Legend.Add(r.Policy, line)
			}
		}
	}
	waiting.X.Label.Text = "hour of the trace; the first day fills the cluster"
	waiting.Legend.Top, waiting.Legend.Left = true, true
	granted.Y.Max = 100
	canvas := vgsvg.New(20*vg.Centimeter, 16*vg.Centimeter)
	rows := [][]*plot.Plot{{granted}, {waiting}}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter,
		PadY: 3 * vg.Millimeter}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		rows[i][0].Draw(row[0])
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	_, err = canvas.WriteTo(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}

func strip(label string) *plot.Plot {
	p := plot.New()
	p.Y.Min, p.Y.Label.Text = 0, label
	for _, style := range []*text.Style{&p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Y.Label.TextStyle, &p.Legend.TextStyle} {
		style.Font.Variant, style.Font.Size = "Sans", vg.Points(9)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 255}, color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 255}
	p.Add(grid)
	return p
}
