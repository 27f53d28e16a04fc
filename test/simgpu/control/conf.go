// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// conf is what of simgpu.conf is for the control device. The simulated libraries refuse what they do not know in it.
type conf struct {
	devices int
	bus     []int
	control string
}

// What control= may be.
const (
	controlFull    = "full"
	controlRefuses = "refuse" // the calls that keep shares
	controlOld     = "old"    // the driver's reader of the log looks once a second
)

const mostDevices = 16

func readConf(dir string) (conf, error) {
	c := conf{devices: 2, control: controlFull}
	for i := range mostDevices {
		c.bus = append(c.bus, 0x10+0x0f*i)
	}
	path := filepath.Join(dir, "simgpu.conf")
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return c, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if err := c.set(key, value); err != nil {
			return c, fmt.Errorf("%s: %s=%s: %w", path, key, value, err)
		}
	}
	return c, nil
}

func (c *conf) set(key, value string) (err error) {
	device, rest, _ := strings.Cut(strings.TrimPrefix(key, "device"), ".")
	switch {
	case key == "devices":
		if c.devices, err = strconv.Atoi(value); err == nil && (c.devices < 0 || c.devices > mostDevices) {
			err = fmt.Errorf("accepted are 0 to %d", mostDevices)
		}
	case key == "control":
		if value != controlFull && value != controlRefuses && value != controlOld {
			err = fmt.Errorf("accepted are %s, %s and %s", controlFull, controlRefuses, controlOld)
		}
		c.control = value
	case rest == "pci_bus":
		index := 0
		if index, err = strconv.Atoi(device); err == nil && index >= 0 && index < mostDevices {
			c.bus[index], err = strconv.Atoi(value)
		}
	}
	return err
}
