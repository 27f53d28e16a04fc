// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// errUnheld is wrapped where steps would run without the plugin.
var errUnheld = errors.New("steps run without the plugin")

// whileWritten is how long somebody may take who writes plugstack.conf where it stands.
const whileWritten = time.Second

// pluginNamed is an error where Slurm reads a plugstack.conf here that does not name the plugin, as on a configless node that was sent
// an include without what it includes. Steps would find whole GPUs, and nobody would tell them of a refusal, so that the node is
// broken for jobs with GPUs. What cannot be read says nothing.
func (p *prolog) pluginNamed() error {
	err := p.lookForPlugin()
	if err != nil {
		time.Sleep(whileWritten)
		err = p.lookForPlugin()
	}
	return err
}

func (p *prolog) lookForPlugin() error {
	slurmConf := os.Getenv("SLURM_CONF") // slurmd's own
	if slurmConf == "" {
		return nil
	}
	plugstack := filepath.Join(filepath.Dir(slurmConf), "plugstack.conf")
	named, err := namesPlugin(plugstack)
	if named || err != nil {
		return p.unknown(err)
	}
	conf, err := slurmconf.Read(slurmConf) // which may be long, and is seldom needed
	if err != nil {
		return p.unknown(err)
	}
	if elsewhere, _, _ := conf.Value("PlugStackConfig"); elsewhere != "" {
		if !filepath.IsAbs(elsewhere) { // from slurmd's folder, which is not known
			return p.unknown(fmt.Errorf("PlugStackConfig=%s is no whole path", elsewhere))
		}
		plugstack = elsewhere
		if named, err = namesPlugin(plugstack); named || err != nil {
			return p.unknown(err)
		}
	}
	return fmt.Errorf("%w: %s does not name %s; vgpu-gres check says what to do", errUnheld, plugstack, slurmconf.PluginName)
}

func (p *prolog) unknown(err error) error {
	if err != nil {
		p.log.Warn("it is not known whether steps are held to their slices", "reason", err)
	}
	return nil
}

func namesPlugin(plugstack string) (bool, error) {
	if _, err := os.Stat(plugstack); errors.Is(err, fs.ErrNotExist) { // itself, not something that it includes
		return false, nil
	}
	lines, err := slurmconf.Plugstack(plugstack)
	return slurmconf.PluginIndex(lines, slurmconf.PluginName) >= 0, err
}
