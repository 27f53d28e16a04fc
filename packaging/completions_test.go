// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// completed is what bash offers for a line, of which the last word is being typed. before is run first.
func completed(t *testing.T, before string, words ...string) []string {
	t.Helper()
	script := before + `
. completions/slurm-vgpu.bash || exit 1
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
[[ $(complete -p "$1") =~ \ -F\ ([^ ]+) ]] || exit 1
completer=${BASH_REMATCH[1]}
"$completer" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"$completer" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" # again is the same
printf '%s\n' "${COMPREPLY[@]}"`
	cmd := exec.Command("bash", append([]string{"--norc", "-c", script, "bash"}, words...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Fields(string(out))
	if len(lines)%2 != 0 || !cmp.Equal(lines[:len(lines)/2], lines[len(lines)/2:]) {
		t.Errorf("%v: the second time it is other: %v", words, lines)
	}
	return lines[:len(lines)/2]
}

const (
	slurms = `_theirs() { COMPREPLY=($(compgen -W "--verbose --version --gres=" -- "$2")); }`
	// As bash-completion does it, which registers a command when it is first completed.
	onDemand = slurms + `; _completion_loader() { complete -F _theirs "$1"; }`
)

func TestCompletion(t *testing.T) {
	var options []string
	for _, o := range request.Options {
		options = append(options, "--"+o.Name+"=")
	}
	for name, tc := range map[string]struct {
		before string
		words  []string
		want   []string
	}{
		"every option":              {"", []string{"sbatch", "--vgpu-"}, options},
		"beside what is registered": {slurms + "; complete -F _theirs srun", []string{"srun", "--v"}, append([]string{"--verbose", "--version"}, options...)},
		"beside what is loaded":     {onDemand, []string{"salloc", "--ve"}, []string{"--verbose", "--version"}},
		"loaded, and ours":          {onDemand, []string{"sbatch", "--vgpu-p"}, []string{"--vgpu-place=", "--vgpu-policy=", "--vgpu-priority="}},
		"nobody else":               {"", []string{"sbatch", "job"}, []string{}},
		"a value":                   {onDemand, []string{"sbatch", "--vgpu-place", "=", "p"}, []string{"pack"}},
		"all values":                {onDemand, []string{"sbatch", "--vgpu-policy", "="}, []string{"cap", "elastic"}},
		"a value in a word":         {onDemand, []string{"sbatch", "--vgpu-bind=t"}, []string{"task"}},
		"a value behind a blank":    {onDemand, []string{"srun", "--vgpu-bind", "n"}, []string{"none"}},
		"a GRES":                    {onDemand, []string{"srun", "--gres", "=", "v"}, []string{"vgpu:1"}},
		"another's value":           {slurms + `; _theirs() { COMPREPLY=(debug); }; complete -F _theirs srun`, []string{"srun", "--partition", "=", "d"}, []string{"debug"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, completed(t, tc.before, tc.words...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What it offers is what the options take.
func TestCompletedValuesAreAccepted(t *testing.T) {
	for _, o := range request.Options {
		values := completed(t, "", "sbatch", "--"+o.Name, "=")
		if !slices.Equal(values, o.Offers) {
			t.Errorf("--%s: %q are offered, want %q", o.Name, values, o.Offers)
		}
		for _, value := range values {
			var r request.Request
			if err := request.ParseAs("--"+o.Name, o.Name, value, &r); err != nil {
				t.Error(err)
			}
		}
	}
}
