/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring PROCESSES: start that many processes on one CPU, which pass a token around by pipes, so that each pass is a switch
 * from one to the next. Prints their PIDs in a line. Then each line "go ROUNDS" on standard input has the token go round
 * so many times, and prints the nanoseconds that took. They end with standard input.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024

static int pipes[MOST + 1][2];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void pass_on(int from, int to)
{
	char token;

	if (read(from, &token, 1) != 1 || write(to, &token, 1) != 1)
		exit(0);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0;
	struct timespec before, after;
	cpu_set_t one;
	char line[64];

	if (count < 1 || count > MOST)
		return 2;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("sched_setaffinity");
	for (int i = 0; i <= count; i++)
		if (pipe(pipes[i]))
			die("pipe");
	for (int i = 0; i < count; i++) {
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pass_on(pipes[i][0], pipes[i + 1][1]);
		}
		printf("%d ", child);
	}
	printf("\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		long rounds = atol(line + 3);

		clock_gettime(CLOCK_MONOTONIC, &before);
		for (long i = 0; i < rounds; i++) {
			char token = 0;

			if (write(pipes[0][1], &token, 1) != 1 || read(pipes[count][0], &token, 1) != 1)
				die("the ring");
		}
		clock_gettime(CLOCK_MONOTONIC, &after);
		printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec);
		fflush(stdout);
	}
	return 0;
}
