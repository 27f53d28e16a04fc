// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// launchFile is the file beside a plugin that it loads: the one of its release (spank/loader.c).
func launchFile(plugin string) string {
	own, err := version.Of(plugin)
	if err != nil {
		own = version.Number
	}
	return filepath.Join(filepath.Dir(plugin), "spank_vgpu_launch-"+own+".so")
}

// pyxisName is the file of a plugin that moves tasks into containers.
const pyxisName = "spank_pyxis.so"

// PlugstackLine is the line for a configuration.
func PlugstackLine(plugin, runDir, defaultRunDir string) string {
	line := "required " + plugin
	if runDir != defaultRunDir {
		line += " run_dir=" + runDir
	}
	return line
}

// missingLine is the line to add and where, and what to say where that is not the file that Slurm reads here.
func (c *site) missingLine(pluginDir string) (remedy, also string) {
	want := PlugstackLine(pluginFile("", pluginDir), c.Config.RunDir, rundir.Default)
	if c.sent() && filepath.Dir(c.PlugstackConf) == filepath.Dir(c.SlurmConf) {
		return "on the controller: plugstack.conf: " + want, ": it came from the controller, without what it includes"
	}
	return c.PlugstackConf + ": " + want, ""
}

func (c *site) plugstack() {
	const check = "plugstack"
	pluginDir, _, _ := c.slurm.Value("PluginDir")
	lines, err := slurmconf.Plugstack(c.PlugstackConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Bad(check, "make it readable", "%v", err)
		return
	}
	remedy, also := c.missingLine(pluginDir)
	ours := slurmconf.PluginIndex(lines, slurmconf.PluginName)
	if ours < 0 {
		c.Bad(check, remedy, "%s has no line with %s%s", c.PlugstackConf, slurmconf.PluginName, also)
		return
	}
	line := lines[ours]
	c.pyxis(lines[ours:])
	if !line.Required {
		c.Bad(check, remedy, "%s: the plugin is optional: where it cannot be loaded, jobs run without a limit", line.Place)
	}
	runDir := rundir.Default
	for _, arg := range line.Args {
		if value, ok := strings.CutPrefix(arg, "run_dir="); ok {
			runDir = value
		}
	}
	// The configuration has %n replaced by now, the line has not.
	if c.Config.RunDir != "" && strings.ReplaceAll(runDir, "%n", c.Node) != strings.ReplaceAll(c.Config.RunDir, "%n", c.Node) {
		c.Bad(check, line.Place+": "+PlugstackLine(line.Path, c.Config.RunDir, rundir.Default),
			"%s: the plugin looks for grants in %s, the prolog leaves them in %s (run_dir of config.yaml)", line.Place, runDir, c.Config.RunDir)
	}
	path := pluginFile(line.Path, pluginDir)
	if c.libraryOfRoot(line, path) && c.libraryOfRoot(line, launchFile(path)) {
		c.releaseOf(line, path)
	}
}

// libraryOfRoot says whether a library is there and nobody but root can write it, or what is wrong.
func (c *site) libraryOfRoot(line slurmconf.PluginLine, path string) bool {
	const check = "plugstack"
	info, err := os.Stat(path)
	if err != nil {
		c.Bad(check, "install "+filepath.Base(path)+" there", "%s: %v", line.Place, err)
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && (st.Uid != 0 && int(st.Uid) != os.Geteuid() || info.Mode()&0o022 != 0) {
		c.Bad(check, "chown root:root "+path+" && chmod 755 "+path, "%s belongs to uid %d with mode %#o; Slurm loads only what root alone may write", path, st.Uid, info.Mode().Perm())
		return false
	}
	own, err := version.Of(path)
	switch {
	case err != nil:
		c.Bad(check, "install it again", "%v", err)
	case version.Differs(own):
		c.Bad(check, version.Remedy, "%s is of version %s, this program of %s", path, own, version.Number)
	default:
		return true
	}
	return false
}

// releaseOf looks at the Slurm that the plugin was built for.
func (c *site) releaseOf(line slurmconf.PluginLine, path string) {
	const check = "plugstack"
	built, err := PluginVersion(path)
	if err != nil {
		c.Bad(check, "install a "+slurmconf.PluginName+" built for this Slurm", "%v", err)
		return
	}
	own, _ := version.Of(path) // which it has told before
	running := parseVersion(c.Version)
	switch {
	case running != 0 && built>>8 != running>>8:
		c.Bad(check, "rebuild or install "+slurmconf.PluginName+" for Slurm "+c.Version, "%s was built for Slurm %s and is not loaded by %s: major and minor must be the same", path, versionText(built), c.Version)
	case running == 0:
		c.Warn(check, "see what `scontrol --version` says", "%s loads %s, version %s, built for Slurm %s; which Slurm runs here is not known", line.Place, path, own, versionText(built))
	default:
		c.OK(check, "%s loads %s, version %s, built for Slurm %s", line.Place, path, own, versionText(built))
	}
}

// pyxis looks through our line and those behind it.
func (c *site) pyxis(lines []slurmconf.PluginLine) {
	if i := slurmconf.PluginIndex(lines, pyxisName); i > 0 {
		c.Bad("plugstack", "put it before "+lines[0].Place, "%s: Pyxis comes after %s, which cannot see when it moves a task into a container of another job", lines[i].Place, slurmconf.PluginName)
	}
}

// PluginPath is where the plugin is installed, as far as that is known without slurm.conf.
func PluginPath() string { return pluginFile("", "") }

// pluginFile is where Slurm finds a plugin of a plugstack line; "" is ours.
func pluginFile(name, pluginDir string) string {
	if filepath.IsAbs(name) {
		return name
	}
	if name == "" {
		name = slurmconf.PluginName
		if path := installed.Usual(name); exists(path) {
			return path
		}
	}
	for _, dir := range append(strings.Split(pluginDir, ":"), "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm",
		"/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm") {
		if path := filepath.Join(dir, name); dir != "" && exists(path) {
			return path
		}
	}
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// PluginVersion reads the Slurm version that a plugin was built for out of its plugin_version, without
// loading it.
func PluginVersion(path string) (uint32, error) {
	file, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read plugin %s: %w", path, err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read plugin %s: %w", path, err)
	}
	for _, symbol := range symbols {
		if symbol.Name != "plugin_version" {
			continue
		}
		for _, section := range file.Sections {
			if section.Type == elf.SHT_NOBITS || symbol.Value < section.Addr || symbol.Value+4 > section.Addr+section.Size || section.Flags&elf.SHF_ALLOC == 0 {
				continue
			}
			var word [4]byte
			if _, err := section.ReadAt(word[:], int64(symbol.Value-section.Addr)); err != nil {
				return 0, fmt.Errorf("read plugin %s: plugin_version: %w", path, err)
			}
			return binary.LittleEndian.Uint32(word[:]), nil
		}
	}
	return 0, fmt.Errorf("read plugin %s: it has no plugin_version: it is no Slurm plugin", path)
}

// BuiltFor is the Slurm that a plugin was built for, such as "22.05.8"; "" if there is none to read.
func BuiltFor(plugin string) string {
	built, err := PluginVersion(plugin)
	if err != nil {
		return ""
	}
	return versionText(built)
}

var versionNumbers = pattern.Late(`\b([0-9]{2})\.([0-9]{2})\.([0-9]{1,2})`)

// ParseVersion finds the version in what `scontrol --version` prints: "slurm-wlm 22.05.8".
func ParseVersion(text string) string { return versionNumbers().FindString(text) }

// parseVersion packs "22.05.8" as Slurm does; 0 if it is none.
func parseVersion(text string) uint32 {
	parts := versionNumbers().FindStringSubmatch(text)
	if parts == nil {
		return 0
	}
	var packed uint32
	for _, part := range parts[1:] {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil {
			return 0
		}
		packed = packed<<8 | uint32(n)
	}
	return packed
}

func versionText(packed uint32) string {
	return fmt.Sprintf("%d.%02d.%d", packed>>16&0xff, packed>>8&0xff, packed&0xff)
}

// RunningVersion asks a Slurm command for its version, which it tells only if it likes slurm.conf; "" if
// it does not.
func RunningVersion(ctx context.Context, command, slurmConf string) string {
	text, err := say(ctx, command, slurmConf, "--version")
	if err != nil {
		return ""
	}
	return ParseVersion(text)
}
