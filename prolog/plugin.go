// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// errUnheld is wrapped where steps would run without the plugin, or the plugin would not find their jobs.
var errUnheld = errors.New("steps would run without limits")

// whileWritten is how long somebody may take who writes plugstack.conf where it stands.
const whileWritten = time.Second

// pluginSettings are those that the plugin's line has and this program reads elsewhere, and what they come to here. Where they differ,
// the plugin looks for jobs where there are none, and would start each without limits. A test holds them to what the plugin takes.
var pluginSettings = map[string]func(*config.Config) *string{
	"run_dir": func(cfg *config.Config) *string { return &cfg.RunDir },
}

// settingsAgree is an error where the plugin's line says another thing than this program's configuration.
func (p *prolog) settingsAgree(line slurmconf.PluginLine) error {
	given := make(map[string]string)
	for _, argument := range line.Args {
		key, value, _ := strings.Cut(argument, "=")
		given[key] = value
	}
	for key, of := range pluginSettings {
		theirs := config.Default()
		if value, ok := given[key]; ok {
			*of(&theirs) = value
		}
		theirs = theirs.ForNode(p.node)
		if there, here := *of(&theirs), *of(&p.cfg); filepath.Clean(there) != filepath.Clean(here) {
			return fmt.Errorf("%w: %s: %s is %s there, and %s in %s", errUnheld, line.Place, key, there, here, p.opts.configPath)
		}
	}
	return nil
}

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
	line, err := pluginLine(plugstack)
	if line != nil || err != nil {
		return p.agrees(line, err)
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
		if line, err = pluginLine(plugstack); line != nil || err != nil {
			return p.agrees(line, err)
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

func (p *prolog) agrees(line *slurmconf.PluginLine, err error) error {
	if err != nil {
		return p.unknown(err)
	}
	return p.settingsAgree(*line)
}

// pluginLine is nil where the plugin is not named.
func pluginLine(plugstack string) (*slurmconf.PluginLine, error) {
	if _, err := os.Stat(plugstack); errors.Is(err, fs.ErrNotExist) { // itself, not something that it includes
		return nil, nil
	}
	lines, err := slurmconf.Plugstack(plugstack)
	if i := slurmconf.PluginIndex(lines, slurmconf.PluginName); err == nil && i >= 0 {
		return &lines[i], nil
	}
	return nil, err
}
