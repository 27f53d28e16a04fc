// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package crashpoint names the places at which a test kills a process, to prove that what it
// leaves behind is the state before or the state after. A released binary never sets a hook.
package crashpoint

var hook func(name string)

// At marks a place. It does nothing unless a test has set a hook.
func At(name string) {
	if hook != nil {
		hook(name)
	}
}

// Set installs the hook of a test. Call it before anything runs that may reach a crash point.
func Set(h func(name string)) { hook = h }
