#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The library says of which release it is.
#   version.sh LIBRARY
set -u
want="slurm-vgpu $(cat "$(dirname "$(readlink -f "$0")")/../../VERSION")"
said=$(readelf -p .slurm_vgpu.version "$1" | sed -n 's/^ *\[ *0\] *//p')
if [ "$said" = "$want" ]; then
	echo "PASS the_library_says_its_version"
else
	echo "FAIL the_library_says_its_version: '$said', want '$want'"
	exit 1
fi
