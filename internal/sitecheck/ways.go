// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import "github.com/slurm-vgpu/slurm-vgpu/internal/config"

// OpenWays warns of each way past the limits that config.yaml leaves open, with the key that closes it. None is a fault: what a site
// needs of them is its own affair.
func OpenWays(cfg config.Config) []Finding {
	const check = "open ways"
	var c Report
	warn := func(open bool, remedy, says string) {
		if open {
			c.Warn(check, "config.yaml: "+remedy, "%s", says)
		}
	}
	warn(!cfg.IsStrict(), "isolation: strict", "a job can take its limits off (isolation: preload)")
	warn(!cfg.ClosesFiles(), "device_files: closed, with the file for modprobe and the unit that slurm-vgpu-config.yaml(5) names",
		"everybody on the node may open the GPUs, in jobs or not: ssh and cron have all of them (device_files: open)")
	warn(!cfg.MasksOthers(), "without_slice: mask", "a job without a slice has every GPU (without_slice: leave)")
	warn(cfg.IsStrict() && cfg.UserNamespaces == config.UserAllow, "user_namespaces: deny, which takes rootless containers as well",
		"a job's own user namespaces are a way to hide from the library (user_namespaces: allow)")
	warn(cfg.IsStrict() && cfg.OtherAPIs == config.OtherOpen, "other_apis: closed", "OpenCL, Vulkan and OpenGL have no limits in a slice (other_apis: open)")
	warn(cfg.OnLimitFailure == config.LimitOpen, "on_limit_failure: closed", "a program whose limit cannot be looked up runs without one (on_limit_failure: open)")
	if c.Findings == nil {
		c.OK(check, "config.yaml leaves none open")
	}
	return c.Findings
}
