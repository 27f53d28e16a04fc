/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each number that was measured or chosen, once. Of each: what it is; From: where it was measured, or that it
 * was chosen; Wrong: what breaks if it is. Its unit ends its name. What the driver or Slurm fixes is not here
 * (api/), nor how large shared pages are (api/layout.h). checks/tuning.sh looks for others elsewhere.
 *
 * "H200" is an H200 with driver 580. Of another GPU look first at what was measured on one. */
#ifndef VGPU_TUNING_H
#define VGPU_TUNING_H

/* ---- base ---- */

/* A line of the cache. From: x86-64 and most of aarch64. Wrong: words of different threads share a line,
 * and calls get slower. */
#define VGPU_LINE_BYTES 64
/* The smallest page that a kernel has; what a library begins with. From: x86-64 and aarch64. Wrong,
 * larger: what lies behind a library's first page is read, and may not be there. */
#define VGPU_PAGE_BYTES 4096
/* How often a brief lock is looked at before the thread sleeps. From: chosen. Wrong, small: an
 * allocation sleeps; large: threads of a busy machine burn their time. */
#define VGPU_BRIEF_LOCK_SPINS 200
/* And for how long it sleeps. From: Linux, which sleeps no shorter by itself. Wrong, large: an
 * allocation is late by it where threads meet. */
#define VGPU_BRIEF_LOCK_PAUSE_NS 50000
/* The stack of the thread that starts NVML. From: chosen; the driver's calls run there. Wrong, small:
 * the program ends in one of them. */
#define VGPU_THREAD_STACK_BYTES (1u << 20)
/* Places of a table's first mapping, a power of two; it doubles when half full. From: chosen. Wrong:
 * only memory of the host. */
#define VGPU_TABLE_FIRST_ENTRIES 128u
/* Addresses of one imported function in a library. From: chosen. Wrong, small: the step counts as one
 * whose groups are not all named. */
#define VGPU_IMPORT_PLACES 8
/* Copies of the driver in one process whose lookups are left alone. From: chosen. Wrong, small: the next
 * one is looked for again at each of its lookups. */
#define VGPU_KNOWN_DRIVERS 4

/* ---- the start again, route/scope.c ---- */

/* Room for the command line at first; doubled. From: chosen. Wrong: one more mapping. */
#define VGPU_CMDLINE_FIRST_BYTES (1u << 20)
/* More than any kernel takes. From: Linux since 4.13, 6 MiB; before, a quarter of the stack's limit.
 * Wrong, small: a program with a longer one does not start. */
#define VGPU_CMDLINE_MOST_BYTES (1u << 28)
/* Of /etc/ld.so.preload. From: chosen. Wrong, small: a name behind is not seen. */
#define VGPU_PRELOAD_FILE_BYTES 65536u
/* Stack between a program's arguments and what the linker calls at the start. From: glibc 2.36, some 150
 * bytes; behind a program's dlopen at least 1800. Wrong, small: the library stays behind what is in
 * front of it; large: a program is begun again in its middle. */
#define VGPU_START_STACK_BYTES 1024u

/* ---- process ---- */

/* How old vgpud's count may be. From: chosen; vgpud writes it twice a second. Wrong, small: NVML shows
 * the driver's figures at times; large: a dead vgpud's count is shown. */
#define VGPU_COUNT_FRESH_NS 2000000000u
/* How often a page that is being written is read again. From: chosen. Wrong, small: as above. */
#define VGPU_COUNT_READ_TRIES 10

/* ---- channels ---- */

/* Handles of devices, and groups, and channels of a group, that are kept in mind. From: chosen. More
 * groups than have room on the page: what is there goes, and another one comes in its place. Wrong,
 * small: the step counts as one whose groups are not all named. */
#define VGPU_HANDLE_DEVICES 128
#define VGPU_HANDLE_GROUPS 96
#define VGPU_HANDLE_CHANNELS 64
/* Calls that wait to be read by the thread that reads. From: chosen. Wrong, small: threads wait for
 * room. */
#define VGPU_HANDLE_EVENTS 256
/* How long a thread waits for room, and how often: about a second. From: chosen, as a thread that reads
 * may not get on for long on a busy machine. Wrong, small: as above; large: a program hangs. */
#define VGPU_HANDLE_ROOM_PAUSE_NS 50000
#define VGPU_HANDLE_ROOM_TRIES 10000

/* ---- account: the ledger's lock ---- */

/* How often the lock is looked at before the thread sleeps. From: chosen. Wrong: as
 * VGPU_BRIEF_LOCK_SPINS. */
#define VGPU_LEDGER_LOCK_SPINS 200
/* For how long it sleeps; half of it is how long a holder is watched before it is looked for. From:
 * chosen. Wrong, large: allocations are late by it where a wake was lost. */
#define VGPU_LEDGER_LOCK_SLEEP_NS 2000000
/* Longer than any holder that runs, however loaded the node is. From: chosen. Wrong, small: a lock is
 * taken from a holder that runs, and the ledger is recounted. */
#define VGPU_LEDGER_LOCK_HOLD_NS 1000000000u
/* The ledger's owner can make it look as if the lock were passed on for ever: it is waited for so long.
 * From: chosen, several holders' time. Wrong, small: as above; large: that job's own calls are late by
 * it. */
#define VGPU_LEDGER_LOCK_GRACE_NS (3ull * VGPU_LEDGER_LOCK_HOLD_NS)
/* And for a while after that much shorter, as one call takes the lock several times. From: chosen.
 * Wrong: as above. */
#define VGPU_LEDGER_LOCK_ROBBED_GRACE_NS 10000000u
#define VGPU_LEDGER_LOCK_ROBBED_FOR_NS (60ull * VGPU_LEDGER_LOCK_HOLD_NS)
/* How often the lock is tried to be given back while others mark that they sleep. From: chosen. Wrong,
 * small: a recount where none is needed; large: who writes there holds a program up. */
#define VGPU_LEDGER_UNLOCK_TRIES 1000
/* A lock lost this often in one go means that a program plays with the ledger. From: chosen. Wrong,
 * small: the sums stay wrong until the next change; large: as above. */
#define VGPU_LEDGER_LOST_LOCKS 3

/* ---- account: room that comes back ---- */

/* How often it is looked for processes that have ended, unless a refusal is near. From: chosen. Wrong,
 * small: calls get slower; large: what an ended process held counts for longer. */
#define VGPU_SWEEP_EVERY_NS 100000000u
/* How long a charge waits for contexts to be measured, and how often it looks at those of others. From: an
 * H200, some tenths of a second. Wrong, small: a process is refused what it has a moment later; large: a
 * killed one holds others up for it. */
#define VGPU_MEASURED_SOON_NS 2000000000u
#define VGPU_MEASURE_PAUSE_NS 1000000
/* After having waited in vain: what the ledger says may be garbage, or left by a process that was killed
 * where this one cannot see it. From: chosen. Wrong, small: each refusal takes seconds; large: as above. */
#define VGPU_MEASURE_IN_VAIN_NS 60000000000u
/* How long calls of others are in the driver, unless they are stopped there, and how often it is looked.
 * From: chosen. Wrong, small: a refusal that need not be; large: a refusal is late by it. */
#define VGPU_OTHERS_DONE_NS 5000000u
#define VGPU_OTHERS_PAUSE_NS 20000
/* How long the first context of a job may take until others go on. From: an H200, some tenths of a
 * second, also when eight are made at once. Wrong, small: processes that start together may pass the
 * limit together; large: a killed one holds others up for it. */
#define VGPU_CONTEXT_MEASURED_NS 10000000000u
/* The charge for a context of unknown cost, and the most that a measured cost may be. From: an H200, 518
 * MiB; less on older products. Wrong, small: a job is over its limit until its first context is
 * measured; large: a small slice waits for room that it has. */
#define VGPU_CONTEXT_DEFAULT_BYTES (1024ull << 20)
#define VGPU_CONTEXT_MOST_BYTES (4096ull << 20)

/* ---- driver ---- */

/* Devices by CUDA ordinal, and contexts, that are kept in mind. From: chosen. Wrong, small: the driver
 * is asked each time; a context beyond is not charged when it is made but with what the driver takes. */
#define VGPU_CACHED_DEVICES 64
#define VGPU_NOTED_CONTEXTS 64
/* Processes that NVML lists of one GPU. From: chosen. Wrong, small: contexts cost what is charged
 * before. */
#define VGPU_REPORT_PROCESSES 1024
/* How long a thread waits for NVML: to be loaded, which this very thread may keep it from, and to be
 * started. From: chosen. Wrong, small: contexts stay charged with a guess for longer; large: a library's
 * constructor that makes a context is late by it. */
#define VGPU_NVML_LOADED_NS 200000000u
#define VGPU_NVML_STARTED_NS 10000000000u
/* How long the driver's last word on free memory stands for cuMemGetInfo. From: chosen; asking takes 5
 * us on an H200. Wrong, small: programs that ask often get slower; large: they see late what others
 * freed. */
#define VGPU_FREE_MEMORY_GOOD_NS 1000000u

/* ---- gate ---- */

/* Streams that the gate times at once. From: chosen. Wrong, small: launches of the streams beyond are
 * charged by what others took. */
#define VGPU_GATE_STREAMS 256
/* How often a thread that waits looks whether it still has to; while groups are in flight, what they
 * take; and whether it may begin another group. From: chosen. Wrong, small: a processor is kept busy;
 * large: a slice has less than its cap. */
#define VGPU_GATE_LOOK_NS 50000000u
#define VGPU_GATE_FLIGHT_LOOK_NS 500000u
#define VGPU_GATE_GROUP_LOOK_NS 50000u
/* Work in flight may itself wait for this thread's next call: the thread waits for it no longer than this.
 * From: chosen. Wrong, small: long kernels are charged together; large: such a program hangs for it. */
#define VGPU_GATE_STALLED_NS 10000000000u
/* The least time of a launch that is not timed. From: chosen. Wrong, small: many streams pass the
 * cap; large: they have less. */
#define VGPU_GATE_UNTIMED_NS 50000u
/* Of a pause no more than this is made up for. From: chosen. Wrong, small: a program that pauses has
 * less than its cap; large: a burst delays others by it. */
#define VGPU_BUCKET_CREDIT_NS 250000000ull
/* The longest debt. The ledger is the job's own to write: what lies further ahead is garbage and holds
 * nobody. From: chosen. Wrong, small: long kernels pass the cap; large: garbage holds a program up for
 * it. */
#define VGPU_BUCKET_OWED_NS 30000000000ull
/* A thread with a slightly older time must not take the longest debt for garbage. From: chosen.
 * Wrong, small: a debt is forgiven. */
#define VGPU_BUCKET_EARLIER_NS 1000000000ull
/* Longer than any debt: a launch goes then. From: the two above. Wrong, small: the cap is passed. */
#define VGPU_GATE_WAIT_MOST_NS (VGPU_BUCKET_OWED_NS + 5000000000u)
/* How much the GPU has to do with a group of launches, and of how many it may be. From: chosen; on an
 * H200 a held launch costs 1.5 us more. Wrong, small: launches get slower; large: a slice passes its cap
 * for longer. */
#define VGPU_BUCKET_GROUP_NS 2000000ull
#define VGPU_BUCKET_GROUP_LAUNCHES 32u

/* ---- memory ---- */

/* The piece that the driver takes from the device at once; smaller blocks share one. From: an
 * H200. Wrong: charges differ from what the driver holds; too small ones pass the limit. */
#define VGPU_GRANULE_BYTES (2ull << 20)
#define VGPU_SHARED_UP_TO_BYTES (1ull << 20)
/* Small blocks are rounded up to this, as the driver aligns them; also a piece of managed memory.
 * From: an H200. Wrong: as above. */
#define VGPU_SMALL_PIECE_BYTES 512ull
#define VGPU_MANAGED_PIECE_BYTES (64ull << 10)
/* The smallest need that the driver tells for an array; and by what an array's size is computed where it
 * does not tell. From: an H200. Wrong: as above. */
#define VGPU_ARRAY_PAGE_BYTES 65536u
#define VGPU_ARRAY_ROW_BYTES 64u
#define VGPU_ARRAY_LEAST_ROWS 8u
#define VGPU_ARRAY_MOST_ROWS 128u
/* The pitch that the driver chooses as a rule; another one is put right afterwards. From: the driver's
 * usual one. Wrong: a block that would fit exactly is refused. */
#define VGPU_PITCH_BYTES 512u
/* Parts of the table of blocks, each with a lock. From: chosen. Wrong, small: they wait for each other. */
#define VGPU_BLOCK_STRIPES 16
/* Cells that say whether a pointer may be ours at all, 2 to the power of this. From: chosen. Wrong,
 * small: frees of what is not ours look into the table. */
#define VGPU_BLOCK_CELL_BITS 14
/* Entries that are taken out of a table at once, on the stack. From: chosen. Wrong: one more round. */
#define VGPU_UNMAPPED_ENTRIES 64u
#define VGPU_CLOSED_DESCRIPTORS 32u

/* ---- pools ---- */

/* The piece that a pool takes from the device at once. From: an H200. Wrong, small: a pool's growth is
 * charged late, and may pass the limit; large: an allocation that fits is refused. */
#define VGPU_POOL_CHUNK_BYTES (32ull << 20)
/* Pools that are known. From: chosen. Wrong, small: what comes from the others is charged by the block. */
#define VGPU_KNOWN_POOLS 128
/* How long an allocation that finds no room waits for what its stream frees, and how often it looks.
 * From: chosen. Wrong, small: a refusal that need not be; large: who waits for this very thread waits
 * for it. */
#define VGPU_POOL_STREAM_NS 2000000000u
#define VGPU_POOL_STREAM_PAUSE_NS 20000
/* How often a charge is tried to be turned into a reservation. From: chosen. Wrong, small: a refusal
 * that need not be. */
#define VGPU_POOL_RESERVE_TRIES 10
/* Longer than the driver takes to give a pool's memory back. From: chosen. Wrong, small: a pool may be
 * asked about that is no more. */
#define VGPU_POOL_DESTROYED_NS 1000000000u
/* Child graphs within child graphs that are looked at. From: chosen. Wrong, small: memory of deeper ones
 * is found after the launch. */
#define VGPU_NESTED_GRAPHS 16

/* ---- context ---- */

/* How often NVML is asked for what the driver takes for itself: after a load; at least; and how long the
 * free memory of the device is believed when it says that nothing has grown, as somebody else may have
 * freed as much. From: chosen. Wrong, small: calls get slower; large: such memory is charged late. */
#define VGPU_OVERHEAD_ASK_NS 100000000u
#define VGPU_OVERHEAD_ASK_LEAST_NS 1000000000u
#define VGPU_OVERHEAD_ASK_ANYWAY_NS 10000000000u
/* Free memory may move by so much without any overhead, as small blocks share granules. From: chosen, below a
 * granule. Wrong, small: NVML is asked for nothing; large: small modules are found late. */
#define VGPU_OVERHEAD_MOVED_BYTES (1ull << 20)
/* The heap that every context may make, and what the driver takes for a larger one beyond what it was
 * raised by. From: an H200. Wrong, small: kernels that call malloc pass the limit until it is found;
 * large: a heap that fits is refused. */
#define VGPU_HEAP_DEFAULT_BYTES (8ull << 20)
#define VGPU_HEAP_BESIDES_BYTES (150ull << 20)

/* ---- nvml ---- */

/* Entries of NVML's lists of a device: processes and their samples. From: chosen, above what a device
 * has. Wrong, small: lists are cut. */
#define VGPU_LISTED_ENTRIES 4096u
/* Over how long utilisation is the mean. From: chosen. Wrong, small: it jumps. */
#define VGPU_USAGE_WINDOW_US 2000000ull
/* How often the driver takes a sample: usually, and the shortest and longest that is believed; how long
 * it remembers them. From: an H100; others take up to one a second. Wrong: utilisation is too low or
 * high. */
#define VGPU_SAMPLE_USUAL_US 200000u
#define VGPU_SAMPLE_SHORTEST_US 100000u
#define VGPU_SAMPLE_LONGEST_US 1000000u
#define VGPU_SAMPLES_KEPT_US 14000000ull

#endif
