// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// typed are the programs that people type, and whether a user's PATH has their folder.
var typed = map[string]bool{"vgpuctl": true, "vgpu-exporter": true, "vgpu-gres": false, "vgpud": false}

var (
	between    = regexp.MustCompile(`\|\|?|;|&&|\$\(|[()]`)
	placedPath = regexp.MustCompile(`/usr/(?:share(?:/doc)?|lib)/slurm-vgpu/[\w./*-]+`)
	jobOption  = regexp.MustCompile(`--(vgpu-[a-z]+)`)
	before     = regexp.MustCompile(`^(?:[\w-]*[#$]|\w+=.*|sudo|watch|exec|do|then|if|while|until|timeout|nsenter|ssh|pdsh|clush|srun|sbatch|salloc)$`)
	ofSlurm    = regexp.MustCompile(`^(?:srun|sbatch|salloc)$`)
)

// commandLines are the lines of a document's blocks of code, and what stands in backquotes.
func commandLines(text string) (lines []string) {
	plain := prose(text)
	for i, line := range strings.Split(text, "\n") {
		if plain[i] == "" {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	for _, span := range quoted.FindAllStringSubmatch(strings.Join(plain, "\n"), -1) {
		lines = append(lines, span[1])
	}
	return lines
}

// helps asks the built programs once for each command: "" where there is none.
type helps map[string]string

func (h helps) of(program, command string) string {
	key := program + " " + command
	if help, asked := h[key]; asked {
		return help
	}
	args := []string{"--help"}
	if command != "" {
		args = []string{command, "--help"}
	}
	out, _ := exec.Command(filepath.Join(top, "build", program), args...).CombinedOutput()
	help := string(out)
	if !regexp.MustCompile(`(?m)^(?:  |usage: )` + regexp.QuoteMeta(strings.TrimSpace(key)) + `\b`).MatchString(help) {
		help = ""
	}
	h[key] = help
	return help
}

// wrong says what of a command line does not run; "": nothing that can be seen from here.
func (h helps) wrong(line string) string {
	line, _, _ = strings.Cut(line, "  #")
	for _, part := range between.Split(line, -1) {
		words := strings.Fields(part)
		at := slices.IndexFunc(words, func(word string) bool { _, ours := typed[path.Base(word)]; return ours && !strings.Contains(word, "=") })
		if at < 0 || at > 0 && !before.MatchString(words[0]) { // a word of an output
			continue
		}
		program, slurm := path.Base(words[at]), slices.IndexFunc(words[:at], ofSlurm.MatchString)
		if slurm >= 0 && !typed[program] && !path.IsAbs(words[at]) {
			return program + " is in no user's PATH"
		}
		if said := h.refuses(program, words[at+1:]); said != "" {
			return said
		}
	}
	return ""
}

func (h helps) refuses(program string, words []string) string {
	if program == "vgpud" { // it has no commands but these
		if len(words) > 0 && regexp.MustCompile(`^\[?(--)?[a-z]`).MatchString(words[0]) && !slices.Contains([]string{"run", "release", "--config", "--version"}, strings.Trim(words[0], "[]")) {
			return "vgpud " + words[0]
		}
		return ""
	}
	command, isPlain := "", regexp.MustCompile(`^[a-z][a-z.]+$`)
	if len(words) > 0 && isPlain.MatchString(words[0]) {
		command = words[0]
	}
	help := h.of(program, command)
	if help == "" {
		return "there is no " + program + " " + command
	}
	for _, word := range words {
		option, _, _ := strings.Cut(strings.Trim(word, "[].,:"), "=")
		if option == "--" {
			break
		}
		if len(option) > 2 && strings.HasPrefix(option, "--") && !regexp.MustCompile(`[ ,]`+regexp.QuoteMeta(option)+`\b`).MatchString(help) {
			return program + " " + command + " has no " + option
		}
	}
	return ""
}

// installedFiles are the places that make install fills.
func installedFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("make", "-s", "-C", top, "--no-print-directory", "installed", "SLURM_PLUGINDIR=/usr/lib/slurm").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// A command line of a document runs where the packages are installed: program, command and options exist, files lie where it says.
func TestCommandsOfDocumentsExist(t *testing.T) {
	for program := range typed {
		if _, err := os.Stat(filepath.Join(top, "build", program)); err != nil {
			t.Skipf("%s is not built", program)
		}
	}
	known, places, lines, h := map[string]bool{}, installedFiles(t), 0, helps{}
	for _, option := range request.Options {
		known[option.Name] = true
	}
	for document, text := range documents(t) {
		if isRecord(document) || document == "CHANGELOG.md" {
			continue
		}
		for _, line := range commandLines(text) {
			lines++
			if said := h.wrong(line); said != "" {
				t.Errorf("%s: %s: %s", document, said, line)
			}
			for _, option := range jobOption.FindAllStringSubmatch(line, -1) {
				if !known[option[1]] && !strings.Contains(line, "unrecognized") {
					t.Errorf("%s: there is no option --%s: %s", document, option[1], line)
				}
			}
			for _, place := range placedPath.FindAllString(line, -1) {
				place = strings.TrimRight(place, "./")
				if !slices.ContainsFunc(places, func(file string) bool {
					match, err := path.Match(place, file)
					return err == nil && match || strings.HasPrefix(file, place+"/")
				}) {
					t.Errorf("%s: no package has %s: %s", document, place, line)
				}
			}
		}
	}
	if lines < 1000 || len(h) < 20 {
		t.Errorf("only %d lines and %d commands were understood", lines, len(h))
	}
}

func TestWrongCommandLinesAreFound(t *testing.T) {
	h := helps{
		"vgpuctl ": "  vgpuctl [command]", "vgpuctl status": "  vgpuctl status [flags]\n      --json  print JSON", "vgpuctl statsu": "",
		"vgpu-gres check": "  vgpu-gres check\n  -v, --verbose\n", "vgpuctl set": "  vgpuctl set JOB [flags]\n      --mem size  of each slice",
	}
	for line, found := range map[string]bool{
		"vgpuctl status --json | jq .":                 false,
		"vgpuctl status --jsn":                         true,
		"vgpuctl statsu":                               true,
		"vgpuctl":                                      false,
		"watch vgpuctl statsu":                         true,
		"vgpuctl set JOB --mem 8G":                     false,
		"srun --gres=vgpu:1 vgpu-gres check":           true,
		"srun --gres=vgpu:1 /usr/sbin/vgpu-gres check": false,
		"vgpud release":                                false,
		"vgpud stop":                                   true,
		"# vgpud stop":                                 true,
		"0 h200 2/10 vgpud ok":                         false,
		"vgpuctl status  # and vgpuctl statsu":         false,
	} {
		if said := h.wrong(line); said != "" != found {
			t.Errorf("%s: %q", line, said)
		}
	}
}
