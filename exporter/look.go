// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
	"github.com/slurm-vgpu/slurm-vgpu/internal/words"
)

const (
	// lookTime is what a look may take: NVML can hang in the driver.
	lookTime = 25 * time.Second
	// freshFor is how long a look is good for another request: whoever asks again and again costs the node one look a second.
	freshFor = time.Second
	// maxBytes is more than 1,000 slices with 256 steps each have.
	maxBytes = 256 << 20
)

// looker looks at the node, one look at a time.
type looker struct {
	program string
	args    []string
	options options
	wait    time.Duration // for a look; longer than it may take

	mu   sync.Mutex
	last *look
}

// look is one, which is under way until done is closed.
type look struct {
	done     chan struct{}
	ended    time.Time
	families []*dto.MetricFamily
	err      error
}

var errSlow = errors.New("vgpuctl metrics does not answer: does a call of the driver's hang?")

// look has the series of the node as it is, or was less than a second ago. Where config.yaml is not believed there is an error as well.
func (l *looker) look() ([]*dto.MetricFamily, error) {
	l.mu.Lock()
	if l.last == nil || l.last.isOld() {
		l.last = &look{done: make(chan struct{})}
		go l.last.end(l.ask)
	}
	last := l.last
	l.mu.Unlock()
	select {
	case <-last.done:
		return last.families, last.err
	case <-time.After(l.wait): // the kernel ends no process that is in the driver, and no second one would come further
		return nil, errSlow
	}
}

func (l *look) end(ask func() ([]*dto.MetricFamily, error)) {
	defer close(l.done)
	l.families, l.err = ask()
	l.ended = time.Now()
}

func (l *look) isOld() bool {
	select {
	case <-l.done:
		return time.Since(l.ended) > freshFor
	default:
		return false
	}
}

// ask has a vgpuctl look.
func (l *looker) ask() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.program, l.args...)
	said, wrong := words.First{Most: maxBytes}, words.First{Most: 4 << 10}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &wrong, time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("vgpuctl metrics: %w: %s", err, wrong.Line())
	}
	var node metrics.Node
	if problem := json.Unmarshal(said.Bytes(), &node); problem != nil {
		if err == nil {
			err = fmt.Errorf("read what vgpuctl metrics prints: %w", problem)
		}
		return nil, err
	}
	families, problem := gather(node, l.options)
	return families, errors.Join(err, problem)
}
