// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"testing"
	"unsafe"
)

// The sizes and places are those that a C compiler gives the structures of the headers.
func TestParametersLieAsInTheHeaders(t *testing.T) {
	var (
		alloc   allocArg
		control controlArg
		mapping mapArg
		device  deviceParams
		memory  memoryParams
		buffer  eventBufferParams
		bind    bindParams
		disable disableParams
		info    idInfoParams
		pci     pciInfoParams
		saves   savesParams
		on      residentParams
	)
	for what, c := range map[string]struct{ got, want uintptr }{
		"NVOS21": {unsafe.Sizeof(alloc), 32}, "NVOS21 hObjectNew": {unsafe.Offsetof(alloc.object), 8}, "NVOS21 hClass": {unsafe.Offsetof(alloc.class), 12},
		"NVOS21 pAllocParms": {unsafe.Offsetof(alloc.params), 16}, "NVOS21 status": {unsafe.Offsetof(alloc.status), 28},
		"NVOS54": {unsafe.Sizeof(control), 32}, "NVOS54 cmd": {unsafe.Offsetof(control.command), 8}, "NVOS54 params": {unsafe.Offsetof(control.params), 16},
		"NVOS54 paramsSize": {unsafe.Offsetof(control.paramsBytes), 24}, "NVOS54 status": {unsafe.Offsetof(control.status), 28},
		"NVOS33 with fd": {unsafe.Sizeof(mapping), 56}, "NVOS33 hMemory": {unsafe.Offsetof(mapping.memory), 8}, "NVOS33 length": {unsafe.Offsetof(mapping.bytes), 24},
		"NVOS33 status": {unsafe.Offsetof(mapping.status), 40}, "NVOS33 flags": {unsafe.Offsetof(mapping.flags), 44}, "NVOS33 fd": {unsafe.Offsetof(mapping.fd), 48},
		"NV0080_ALLOC": {unsafe.Sizeof(device), 56}, "NV0080_ALLOC vaSpaceSize": {unsafe.Offsetof(device.spaceBytes), 24},
		"NV2080_ALLOC": {unsafe.Sizeof(subdeviceParams{}), 4},
		"memory":       {unsafe.Sizeof(memory), 128}, "memory attr": {unsafe.Offsetof(memory.attr), 24}, "memory attr2": {unsafe.Offsetof(memory.attr2), 28},
		"memory rangeLo": {unsafe.Offsetof(memory.rangeLow), 48}, "memory size": {unsafe.Offsetof(memory.bytes), 64},
		"event buffer": {unsafe.Sizeof(buffer), 72}, "event buffer recordSize": {unsafe.Offsetof(buffer.recordBytes), 16},
		"event buffer recordCount": {unsafe.Offsetof(buffer.recordCount), 20}, "event buffer hSubDevice": {unsafe.Offsetof(buffer.subdevice), 52},
		"event buffer hBufferHeader": {unsafe.Offsetof(buffer.header), 60}, "event buffer hRecordBuffer": {unsafe.Offsetof(buffer.records), 64},
		"enable events": {unsafe.Sizeof(enableParams{}), 8}, "update get": {unsafe.Sizeof(updateGetParams{}), 8}, "time": {unsafe.Sizeof(timeParams{}), 8},
		"bind": {unsafe.Sizeof(bind), 24}, "bind bAllUsers": {unsafe.Offsetof(bind.allUsers), 16}, "bind reasonCode": {unsafe.Offsetof(bind.reason), 20},
		"attached ids": {unsafe.Sizeof(attachedParams{}), 128},
		"id info":      {unsafe.Sizeof(info), 32}, "id info deviceInstance": {unsafe.Offsetof(info.deviceInstance), 8}, "id info gpuInstance": {unsafe.Offsetof(info.gpuInstance), 24},
		"PCI info": {unsafe.Sizeof(pci), 12}, "PCI info bus": {unsafe.Offsetof(pci.bus), 8}, "PCI info slot": {unsafe.Offsetof(pci.slot), 10},
		"disable": {unsafe.Sizeof(disable), 536}, "disable numChannels": {unsafe.Offsetof(disable.count), 4}, "disable bRewindGpPut": {unsafe.Offsetof(disable.rewind), 9},
		"disable hClientList": {unsafe.Offsetof(disable.clients), 24}, "disable hChannelList": {unsafe.Offsetof(disable.channels), 280},
		"slice": {unsafe.Sizeof(sliceParams{}), 8},
		"saves": {unsafe.Sizeof(saves), 32}, "saves wfi": {unsafe.Offsetof(saves.idle), 16}, "saves cilp": {unsafe.Offsetof(saves.instructions), 24},
		"resident": {unsafe.Sizeof(on), 24}, "resident chID": {unsafe.Offsetof(on.channel), 0}, "resident route": {unsafe.Offsetof(on.routeFlags), 8},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", what, c.got, c.want)
		}
	}
}
