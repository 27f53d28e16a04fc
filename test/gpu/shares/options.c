/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "load.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

struct load_options o = { .us = 1000, .kernels = 1, .deep = 8, .streams = 1, .blocks = 132 };

static int usage(void)
{
	fputs("usage: load --page FILE --loops N [--us N] [--kernels N] [--gap US] [--deep N] [--streams N] "
	      "[--blocks N]\n"
	      "            [--copy MIB] [--fill MIB] [--move MIB [--rows BYTES | --list N]] [--call US] "
	      "[--chain]\n"
	      "            [--rate PER-SECOND | --duty US] [--beside US] [--pretend LIMITS]\n"
	      "       load --calibrate\n",
	      stderr);
	return 2;
}

int options(int argc, char **argv, bool *calibrating)
{
	static const struct option known[] = {
		{ "page", required_argument, NULL, 'p' },    { "loops", required_argument, NULL, 'l' },
		{ "us", required_argument, NULL, 'u' },	     { "kernels", required_argument, NULL, 'k' },
		{ "gap", required_argument, NULL, 'g' },     { "deep", required_argument, NULL, 'd' },
		{ "streams", required_argument, NULL, 's' }, { "blocks", required_argument, NULL, 'b' },
		{ "copy", required_argument, NULL, 'c' },    { "rate", required_argument, NULL, 'r' },
		{ "duty", required_argument, NULL, 'D' },    { "pretend", required_argument, NULL, 'P' },
		{ "fill", required_argument, NULL, 'f' },    { "move", required_argument, NULL, 'm' },
		{ "rows", required_argument, NULL, 'R' },    { "list", required_argument, NULL, 'L' },
		{ "call", required_argument, NULL, 'H' },    { "chain", no_argument, NULL, 'W' },
		{ "beside", required_argument, NULL, 'B' },
		{ "calibrate", no_argument, NULL, 'C' },     { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		unsigned int number = optarg != NULL ? (unsigned int)strtoul(optarg, NULL, 10) : 0;

		switch (c) {
		case 'p': o.page = optarg; break;
		case 'P': o.pretend = optarg; break;
		case 'l': o.loops_per_us = atof(optarg); break;
		case 'u': o.us = number; break;
		case 'k': o.kernels = number; break;
		case 'g': o.gap_us = number; break;
		case 'd': o.deep = number; break;
		case 's': o.streams = number; break;
		case 'b': o.blocks = number; break;
		case 'c': o.copy_mib = number; break;
		case 'f': o.fill_mib = number; break;
		case 'm': o.move_mib = number; break;
		case 'R': o.row_bytes = number; break;
		case 'L': o.list = number; break;
		case 'H': o.call_us = number; break;
		case 'W': o.chain = true; break;
		case 'r': o.rate = number; break;
		case 'B': o.beside_us = number; break;
		case 'D': o.duty_us = number; break;
		case 'C': *calibrating = true; break;
		default: return usage();
		}
	}
	if (o.deep == 0 || o.deep > MOST_DEEP || o.list > MOST_LISTED || o.streams == 0 ||
	    o.streams > MOST_STREAMS)
		return usage();
	return *calibrating || (o.page != NULL && o.loops_per_us > 0) ? 0 : usage();
}
