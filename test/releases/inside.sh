#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh TARGET…: installs what the tree needs and runs these targets of the Makefile, all of them
# whatever happens, with one line of counts for each.
set -uo pipefail
test/setup.sh || exit
case " $* " in
*" packages "*) apt-get install -y --no-install-recommends git >/dev/null || exit ;;
*" test-packages "*)
	apt-get install -y --no-install-recommends git lintian rpm >/dev/null || exit
	export PACKAGEFLAGS=--install # the folder is thrown away
	;;
esac
slurmd -V
make --no-print-directory build build/summary || exit
exec build/summary -- make --no-print-directory -- "$@"
