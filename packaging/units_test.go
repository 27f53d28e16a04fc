// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// Settings of systemd.exec(5) and systemd.resource-control(5) that would take away what a service is for.
var (
	closesDevices = []string{"PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow"} // ProtectClock: in systemd 247
	ownMounts     = []string{"ProtectSystem", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts",
		"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "TemporaryFileSystem", "BindPaths"}
	ownNetwork    = []string{"PrivateNetwork", "IPAddressDeny"}
	oldLibraries  = []string{"MemoryDenyWriteExecute"}
	loadsModules  = []string{"ProtectKernelModules", "ProtectKernelTunables", "RestrictSUIDSGID"}
	inEachService = []string{"CapabilityBoundingSet", "NoNewPrivileges", "RestrictNamespaces", "RestrictRealtime", "LockPersonality", "SystemCallArchitectures",
		"SystemCallFilter", "SystemCallErrorNumber", "RestrictAddressFamilies"}
)

// TestServicesAreBoundAndCanDoTheirWork: each has bounds, and none that its work does not go with.
func TestServicesAreBoundAndCanDoTheirWork(t *testing.T) {
	never := map[string][][]string{
		"audit": {closesDevices, ownNetwork, oldLibraries}, "sample": {closesDevices, oldLibraries}, "metrics": {closesDevices, oldLibraries},
		"metrics@": {closesDevices, oldLibraries}, "inventory": {closesDevices, loadsModules, oldLibraries}, "records": {ownNetwork},
		"sweep": {closesDevices, ownMounts, ownNetwork, oldLibraries}, "devices": {closesDevices, ownMounts, loadsModules},
	}
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) != len(never) {
		t.Fatalf("%v, %v", units, err)
	}
	for _, path := range units {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "slurm-vgpu-"), ".service")
		forbidden, known := never[name]
		if !known {
			t.Errorf("nobody has said what %s must be able to do", path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		has := func(key string) bool {
			return regexp.MustCompile(`(?m)^` + key + `=`).Match(text)
		}
		for _, key := range inEachService {
			if !has(key) {
				t.Errorf("%s: no %s=", path, key)
			}
		}
		for _, keys := range forbidden {
			for _, key := range keys {
				if has(key) {
					t.Errorf("%s: %s= takes away what it is for", path, key)
				}
			}
		}
	}
}

// TestTheReporterComesForBothFolders: systemd takes a folder with hidden files alone for empty, and one condition without a bar
// for one that must hold.
func TestTheReporterComesForBothFolders(t *testing.T) {
	text, err := os.ReadFile("systemd/slurm-vgpu-records.service")
	if err != nil {
		t.Fatal(err)
	}
	spool := config.Default().Spool()
	var want []string
	for _, folder := range []string{spool.Usage(), spool.Again()} {
		want = append(want, "ConditionDirectoryNotEmpty=|"+folder)
	}
	if got := regexp.MustCompile(`(?m)^Condition.*$`).FindAllString(string(text), -1); !slices.Equal(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
}
