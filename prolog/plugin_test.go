// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"testing"
)

// Whatever the plugin takes on its line, the prolog holds against its own configuration.
func TestTheSettingsOfThePluginAreCompared(t *testing.T) {
	source, err := os.ReadFile("../spank/arguments.c")
	if err != nil {
		t.Fatal(err)
	}
	taken := regexp.MustCompile(`_key\[\] = "(\w+)="`).FindAllSubmatch(source, -1)
	if len(taken) == 0 || len(taken) != len(pluginSettings) {
		t.Errorf("the plugin takes %q, and %d settings are compared", taken, len(pluginSettings))
	}
	for _, key := range taken {
		if pluginSettings[string(key[1])] == nil {
			t.Errorf("%s of the plugin's line is compared with nothing", key[1])
		}
	}
}
