// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster brings up a real but private Slurm: munged, mariadbd, slurmdbd, slurmctld and
// slurmd with folders, ports, sockets and keys of their own, and slurm-vgpu in it. It is what
// `make demo`, `make cluster` and the end-to-end tests run on.
//
// Three processes, each a copy of the calling program, share the work:
//
//	outer   what the user started. Makes the folder, removes it at the end.
//	keeper  in a mount namespace with its own copies of /etc, /run and /dev, so that users, ld.so.preload
//	        and run directories never appear on the host. Adopts whatever is orphaned below it.
//	main    the caller's function. Starts the daemons.
//
// Outer and keeper are subreapers: nothing that the cluster starts can leave their process tree,
// so ending the tree ends everything, and only that. Whichever of the three is killed, one of the
// others notices and clears up. What all three together left behind, the next start removes.
//
// Where mount namespaces are forbidden (a container without CAP_SYS_ADMIN) the cluster runs in
// place: users are created with useradd and removed again, and isolation is preload.
package cluster
