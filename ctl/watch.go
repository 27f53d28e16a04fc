// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// watchPause lies between two looks: a node is looked at, not measured.
const watchPause = 2 * time.Second

// watch shows the node until it is interrupted: on a terminal in place, elsewhere by lines of what has changed.
func watch(ctx context.Context, cfg config.Config, node string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	var show shower = &appender{out: out, said: map[string]string{}}
	changed := make(chan os.Signal, 1)
	if file, ok := out.(*os.File); ok && isTerminal(file) {
		screen := &screen{file: file}
		defer screen.leave()
		signal.Notify(changed, unix.SIGWINCH, unix.SIGCONT) // what stood there may have gone
		defer signal.Stop(changed)
		show = screen
	}
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	var before nodeStatus
	for start := time.Now(); ; {
		now := time.Now()
		status, err := readStatus(cfg, node, now)
		if err != nil {
			return err
		}
		sharesBetween(before, status, now.Sub(start))
		before, start = status, now
		if err := show.show(status, now); err != nil {
			return fmt.Errorf("show the node: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			show.forget()
		case <-tick.C:
		}
	}
}

// shower puts a look before somebody.
type shower interface {
	show(status nodeStatus, now time.Time) error
	forget()
}

// screen is a terminal. It is told of lines that have changed, and of no others.
type screen struct {
	file  *os.File
	drawn []string
	begun bool
}

func (s *screen) forget() { s.drawn, s.begun = nil, false }

func (s *screen) show(status nodeStatus, _ time.Time) error {
	width, height := sizeOf(s.file)
	lines := strings.Split(strings.TrimRight(frame(status, width, s.file), "\n"), "\n")
	if len(lines) >= height { // a line more would have it scroll
		lines = append(lines[:max(height-2, 0)], "…")
	}
	var out bytes.Buffer
	if !s.begun {
		out.WriteString("\x1b[?25l\x1b[H\x1b[2J") // no cursor, and nothing else
		s.begun = true
	}
	redraw(&out, s.drawn, lines)
	s.drawn = lines
	if out.Len() == 0 {
		return nil
	}
	_, err := s.file.Write(out.Bytes())
	return err
}

// leave puts the cursor below what was drawn.
func (s *screen) leave() {
	fmt.Fprintf(s.file, "\x1b[%d;1H\x1b[?25h\n", len(s.drawn))
}

// redraw writes what turns the lines before into those now.
func redraw(out *bytes.Buffer, before, now []string) {
	for i, line := range now {
		if i >= len(before) || before[i] != line {
			fmt.Fprintf(out, "\x1b[%d;1H%s\x1b[K", i+1, line)
		}
	}
	if len(before) > len(now) {
		fmt.Fprintf(out, "\x1b[%d;1H\x1b[J", len(now)+1)
	}
}

// appender is a file or a pipe: a line for each GPU that has changed.
type appender struct {
	out  io.Writer
	said map[string]string
}

func (a *appender) forget() {}

func (a *appender) show(status nodeStatus, now time.Time) error {
	for _, g := range status.GPUs {
		line := laneText(g, slicesOn(status, g))
		if a.said[string(g.UUID)] == line {
			continue
		}
		a.said[string(g.UUID)] = line
		if _, err := fmt.Fprintf(a.out, "%s %s %s\n", now.Format(time.RFC3339), status.Node, line); err != nil {
			return err
		}
	}
	return nil
}

// frame is what a terminal of this width shows.
func frame(status nodeStatus, width int, out io.Writer) string {
	var text strings.Builder
	p := painter(out)
	fmt.Fprintf(&text, "%s: %s, %s, %s\n", p.bold(status.Node), plural(len(status.GPUs), "GPU"), plural(len(status.Slices), "slice"),
		waitText(len(status.Waiting)))
	if status.Problem != "" {
		fmt.Fprintln(&text, cut(status.Problem, width))
	}
	text.WriteByte('\n')
	for _, g := range status.GPUs {
		fmt.Fprintln(&text, lane(g, slicesOn(status, g), width))
	}
	if len(status.Slices) > 0 {
		text.WriteByte('\n')
		for line := range strings.Lines(slicesText(status)) {
			fmt.Fprintln(&text, cut(strings.TrimRight(line, "\n"), width))
		}
	}
	return text.String()
}

func slicesOn(status nodeStatus, g gpuStatus) (on []sliceStatus) {
	for _, s := range status.Slices {
		if s.Device == g.UUID {
			on = append(on, s)
		}
	}
	return on
}

// lane is a GPU as wide as the terminal: its slices are blocks as wide as they are large, # for what is used of them and
// - for what is granted only.
func lane(g gpuStatus, on []sliceStatus, width int) string {
	head := fmt.Sprintf("GPU %-2d %-8.8s ", g.Index, g.Type)
	tail := fmt.Sprintf(" %6d of %d MiB %s", g.GrantedMiB, g.MemMiB, g.State)
	cells := max(width-len(head)-len(tail)-2, 10)
	var bar strings.Builder
	drawn := 0
	for _, s := range on {
		room := cells - drawn
		if room <= 0 {
			break
		}
		block := blockOf(s, min(max(int(s.MemMiB*int64(cells)/max(g.MemMiB, 1)), 2), room))
		drawn += len(block)
		bar.WriteString(block)
	}
	bar.WriteString(strings.Repeat(" ", cells-drawn))
	return cut(head+"["+bar.String()+"]"+tail, width)
}

// blockOf is a slice of this width, with its job's number where there is room, and an end.
func blockOf(s sliceStatus, width int) string {
	fill := []byte(strings.Repeat("-", width))
	if s.UsedMiB != nil && s.MemMiB > 0 {
		for i := range min(int((*s.UsedMiB*int64(width-1)+s.MemMiB-1)/s.MemMiB), width-1) {
			fill[i] = '#'
		}
	} else if s.UsedMiB == nil {
		fill = []byte(strings.Repeat("?", width)) // somebody else's
	}
	if label := fmt.Sprint(s.Job); len(label)+2 < width {
		copy(fill, label+" ")
	}
	fill[width-1] = '|'
	return string(fill)
}

// laneText is the same in words.
func laneText(g gpuStatus, on []sliceStatus) string {
	var text strings.Builder
	fmt.Fprintf(&text, "GPU %d %s: %d of %d MiB granted, %s", g.Index, g.Type, g.GrantedMiB, g.MemMiB, g.State)
	for _, s := range on {
		fmt.Fprintf(&text, "; job %d %s %s of %d MiB, %s", s.Job, s.User, known(s.UsedMiB), s.MemMiB, cores(s.SMPercent))
	}
	return text.String()
}

// cut keeps a line of plain text within a width.
func cut(line string, width int) string {
	runes := []rune(line)
	return string(runes[:min(len(runes), max(width, 1))])
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// sizeOf is that of a terminal; one that does not say it is 80 by 24.
func sizeOf(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}
