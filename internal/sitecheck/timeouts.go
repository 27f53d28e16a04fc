// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"fmt"
	"strconv"
	"time"
)

// EpilogTime is how long vgpu-epilog may take: it waits for the node's lock, and no longer.
const EpilogTime = 30 * time.Second

// timeouts: a prolog or epilog that slurmd kills drains the node, and ours wait: the prolog for the
// controller, the epilog for the node's lock. PrologTimeout and EpilogTimeout are of 25.05 and later.
func (c *site) timeouts() {
	prolog := c.Config.Slurm.ControllerTimeout
	fits := c.outlasts("PrologTimeout", prolog, "ends the prolog before slurm.controller_timeout ("+prolog.String()+") is over",
		", or a shorter slurm.controller_timeout in config.yaml")
	fits = c.outlasts("EpilogTimeout", EpilogTime, "ends the epilog before it has waited for the node's lock ("+EpilogTime.String()+")", "") && fits
	// The older setting is for both, and theirs when they are absent.
	longer, says, also := prolog, "ends the prolog before slurm.controller_timeout ("+prolog.String()+") is over",
		", or a shorter slurm.controller_timeout in config.yaml"
	if EpilogTime > longer {
		longer, says, also = EpilogTime, "ends the epilog before it has waited for the node's lock ("+EpilogTime.String()+")", ""
	}
	if c.outlasts("PrologEpilogTimeout", longer, says, also) && fits {
		c.OK("PrologEpilogTimeout", "the prolog may wait for the controller for %s, the epilog for the lock for %s", prolog, EpilogTime)
	}
}

// outlasts says whether a time of slurm.conf, if there is one, is longer than what ours take.
func (c *site) outlasts(key string, need time.Duration, says, also string) bool {
	value, at, ok := c.slurm.Value(key)
	seconds, err := strconv.Atoi(value)
	if !ok || err != nil || seconds <= 0 || seconds == 65534 || time.Duration(seconds)*time.Second > need {
		return true
	}
	c.Bad(key, fmt.Sprintf("slurm.conf: %s=%d%s", key, int(need/time.Second)+30, also), "%s: %s=%d %s, and drains the node", at.Place(), key, seconds, says)
	return false
}
