// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

//lint:file-ignore U1000 the driver reads the fields that are not named here

// Parameters of the driver's calls, as in the headers of its open kernel modules (src/common/sdk/nvidia/inc); a name of theirs stands behind each.
// Pointers are numbers here, as the driver wants 64 bits on every machine. The tests hold sizes and places against those of the headers.

// Numbers of the calls by ioctl (nv_escape.h), whose type is 'F'.
const (
	escapeControl = 0x2A
	escapeAlloc   = 0x2B
	escapeMap     = 0x4E
)

// Classes of what a client makes.
const (
	classClient      = 0x41   // NV01_ROOT_CLIENT
	classDevice      = 0x80   // NV01_DEVICE_0
	classSubdevice   = 0x2080 // NV20_SUBDEVICE_0
	classMemory      = 0x90CE // NV01_MEMORY_DEVICELESS
	classEventBuffer = 0x90CD // NV_EVENT_BUFFER
)

// Control calls.
const (
	callAttachedIDs  = 0x201      // NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
	callIDInfo       = 0x205      // NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
	callPCIInfo      = 0x21b      // NV0000_CTRL_CMD_GPU_GET_PCI_INFO
	callTime         = 0x20800403 // NV2080_CTRL_CMD_TIMER_GET_TIME
	callDisable      = 0x2080110b // NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
	callSaves        = 0x20801215 // NV2080_CTRL_CMD_GR_GET_CTXSW_STATS
	callResident     = 0x2080121c // NV2080_CTRL_CMD_GR_GET_CURRENT_RESIDENT_CHANNEL
	callBind         = 0x20801238 // NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2
	callEnableEvents = 0x90cd0101 // NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS
	callUpdateGet    = 0x90cd0102 // NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET
	callFlush        = 0x90cd0104 // NV_EVENT_BUFFER_CTRL_CMD_FLUSH
	callSetTimeSlice = 0xa06c0103 // NVA06C_CTRL_CMD_SET_TIMESLICE
	callSlice        = 0xa06c0104 // NVA06C_CTRL_CMD_GET_TIMESLICE
)

// allocArg is NVOS21_PARAMETERS.
type allocArg struct {
	client, parent, object, class uint32
	params                        uint64
	paramsBytes, status           uint32
}

// controlArg is NVOS54_PARAMETERS.
type controlArg struct {
	client, object, command, flags uint32
	params                         uint64
	paramsBytes, status            uint32
}

// mapArg is NVOS33_PARAMETERS with the descriptor that is then mapped.
type mapArg struct {
	client, device, memory, _ uint32
	offset, bytes, address    uint64
	status, flags             uint32
	fd                        int32
	_                         uint32
}

// mapReadOnly is NVOS33_FLAGS_ACCESS_READ_ONLY.
const mapReadOnly = 1

// deviceParams is NV0080_ALLOC_PARAMETERS.
type deviceParams struct {
	instance, shareClient, targetClient, targetDevice, flags, _ uint32
	spaceBytes, spaceStart, spaceLimit                          uint64
	spaceMode, _                                                uint32
}

// subdeviceParams is NV2080_ALLOC_PARAMETERS.
type subdeviceParams struct{ subdevice uint32 }

// memoryParams is NV_MEMORY_ALLOCATION_PARAMS.
type memoryParams struct {
	owner, kind, flags, width, height uint32
	pitch                             int32
	attr, attr2, format               uint32
	compression, zcull, _             uint32
	rangeLow, rangeHigh, bytes        uint64
	alignment, offset, limit, address uint64
	ctagOffset, space, internal, tag  uint32
	numaNode, _                       int32
}

const (
	memoryOwner    = 0x6d747263 // any
	memoryCached   = 1 << 29    // NVOS32_ATTR_COHERENCY_CACHED
	memoryReadOnly = 1 << 22    // NVOS32_ATTR2_PROTECTION_USER_READ_ONLY: what the driver wants of an event buffer's memory
)

// eventBufferParams is NV_EVENT_BUFFER_ALLOC_PARAMETERS.
type eventBufferParams struct {
	headerAddress, recordsAddress                  uint64
	recordBytes, recordCount                       uint32
	dataAddress                                    uint64
	dataBytes, recordsFree                         uint32
	notification                                   uint64
	dataFree, subdevice, flags, header, records, _ uint32
}

// enableParams is NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS.
type enableParams struct {
	enable uint8
	flags  uint32
}

// keepOldest is NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST: what finds no room is counted as dropped.
const keepOldest = 1

// updateGetParams is NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS.
type updateGetParams struct{ records, data uint32 }

// bindParams is NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS.
type bindParams struct {
	buffer, recordBytes, detail, filter uint32
	allUsers                            uint8
	reason                              uint32
}

// attachedParams is NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS.
type attachedParams struct{ ids [32]uint32 }

const noGPU = 0xffffffff // NV0000_CTRL_GPU_INVALID_ID

// idInfoParams is NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS. gpuInstance counts GPUs in the driver's order, which is not that of /dev.
type idInfoParams struct {
	id, flags, deviceInstance, subdeviceInstance, sli, board, gpuInstance uint32
	numaNode                                                              int32
}

// pciInfoParams is NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS.
type pciInfoParams struct {
	id, domain uint32
	bus, slot  uint16
}

// MostChannels of one call that disables.
const MostChannels = 64

// disableParams is NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS.
type disableParams struct {
	disable                uint8
	count                  uint32
	onlyScheduling, rewind uint8 // rewind throws away what is queued: never
	event                  uint64
	clients, channels      [MostChannels]uint32
}

// sliceParams is NVA06C_CTRL_TIMESLICE_PARAMS.
type sliceParams struct{ us uint64 }

// savesParams is NV2080_CTRL_GR_GET_CTXSW_STATS_PARAMS: how often a group was saved, and how it was cut.
type savesParams struct{ group, flags, saves, restores, idle, blocks, instructions, graphics uint32 }

// residentParams is NV2080_CTRL_GR_GET_CURRENT_RESIDENT_CHANNEL_PARAMS.
type residentParams struct {
	channel, _, routeFlags, _ uint32
	route                     uint64
}

// timeParams is NV2080_CTRL_TIMER_GET_TIME_PARAMS.
type timeParams struct{ ns uint64 }
