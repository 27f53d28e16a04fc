#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh TARGET…: installs what the tree needs and runs these targets of the Makefile, all of them
# whatever happens, with one line of counts for each.
set -uo pipefail
test/setup.sh --containers || exit
case " $* " in
*" test-packages "*)
	apt-get install -y --no-install-recommends git lintian rpm >/dev/null || exit
	export PACKAGEFLAGS=--install # the folder is thrown away
	;;
*" packages "* | *" test-installed "*) apt-get install -y --no-install-recommends git >/dev/null || exit ;;
esac
slurmd -V
make --no-print-directory build build/summary || exit
if [[ " $* " == *" test-installed "* ]]; then # nothing of the build's is left to be tried
	make --no-print-directory packages FORMATS=deb && apt-get install -y --no-install-recommends --reinstall ./build/packages/*.deb && rm build/vgpu* build/*.so || exit
fi
exec build/summary -- make --no-print-directory -- "$@"
