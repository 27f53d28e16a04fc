// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package words keeps what another program says, within bounds.
package words

import (
	"bytes"
	"strings"
)

// First keeps the first Most bytes, and whether there were more. It takes the rest too: a full pipe would keep the program alive. The buffer is not embedded:
// os/exec would use its ReadFrom, which goes around Write.
type First struct {
	Most int
	kept bytes.Buffer
	over bool
}

func (f *First) Write(text []byte) (int, error) {
	room := f.Most - f.kept.Len()
	f.over = f.over || len(text) > room
	f.kept.Write(text[:min(len(text), room)])
	return len(text), nil
}

// Over says that there were more.
func (f *First) Over() bool { return f.over }

func (f *First) Bytes() []byte { return f.kept.Bytes() }

func (f *First) String() string { return f.kept.String() }

// Line is all that was kept, as one line.
func (f *First) Line() string { return strings.Join(strings.Fields(f.kept.String()), " ") }
