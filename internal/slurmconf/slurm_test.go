// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurmconf

import (
	"os/exec"
	"testing"
)

// Where Slurm is installed, its own parser says which texts it takes: scontrol reads slurm.conf before it says its version.
func TestSlurmTakesTheSame(t *testing.T) {
	scontrol, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skip("Slurm is not installed")
	}
	const site = "ClusterName = Cc\nSlurmctldHost = localhost\nNodeName=n1 CPUs=4\nPartitionName=p Nodes=ALL\n"
	for _, text := range []string{
		"", "GresTypes = gpu\n", "GresTypes\t=\tgpu\n", "GresTypes+=gpu\n", "GresTypes +=gpu\n", "GresTypes + =gpu\n", "GresTypes=\n", "GresTypes\n", "=gpu\n",
		"\tGresTypes=gpu\n", "GresTypes=vgpu, gpumem\n", "GresTypes=\"vgpu, gpumem\"\n", "GresTypes='gpu'\n", "GresTypes=a\"b c\"\n", "GresTypes=\"a\"b\n", "GresTypes=\"a b\n",
		"Prolog=/a/b\\#c\n", "GresTypes=gpu # one\n", "GresTypes=gpu # one \\\nProlog=/a\n", "GresTypes= \\\n gpu\n", "NodeName=n7 \\ \n CPUs=4\n",
		"NodeName=n5 Gres = vgpu:1 CPUs=4\n", "NodeName=n5 Gres=\"vgpu:1\" CPUs=4\n", "NodeName=n5 Gres=vgpu:1 , gpumem:2\n",
		"include part_%c.conf\n", "INCLUDE\tpart_%c.conf # one\n", "  Include part_%c.conf\n", "Include sub/b.conf\n", "Include=part_%c.conf\n",
		"ClusterName=d\nInclude part_%c.conf\n", "Prolog=/a\\\\b\n", "Prolog = /a\r\n",
	} {
		path := files(t, map[string]string{"slurm.conf": site + text, "part_cc.conf": "Epilog=/c\n", "part_d.conf": "Epilog = /d e\n",
			"sub/b.conf": "Include more.conf\n", "sub/more.conf": "Epilog=/c\n", "more.conf": "Epilog=/c\n"}) // where 22.05 looks, and 24.11
		file, err := Read(path)
		ours := err == nil && len(file.Untaken) == 0
		for _, line := range file.Lines { // a key that Slurm does not know is no matter of this package
			ours = ours && line.Pairs[0].Key != "include"
		}
		command := exec.Command(scontrol, "--version")
		command.Env = []string{"SLURM_CONF=" + path}
		said, err := command.CombinedOutput()
		if theirs := err == nil; theirs != ours {
			t.Errorf("%q: Slurm takes it: %v, we do: %v (%v)\n%s", text, theirs, ours, file.Untaken, said)
		}
	}
}
