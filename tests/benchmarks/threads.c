/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads PROCESSES THREADS: start that many processes of that many threads each, all asleep, and print one line a
 * process: its PID and the ids of its threads. They end with standard input.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t started;
static pid_t *ids;

static void *sleep_forever(void *place)
{
	*(pid_t *)place = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&started);
	for (;;)
		pause();
	return NULL;
}

static void be_a_process(int threads, int out)
{
	pthread_attr_t small;
	pthread_t thread;
	char line[65536];
	int used = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	pthread_barrier_init(&started, NULL, (unsigned)threads);
	ids = calloc((size_t)threads, sizeof(*ids));
	ids[0] = getpid();
	for (int i = 1; i < threads; i++)
		if (pthread_create(&thread, &small, sleep_forever, &ids[i]))
			exit(1);
	pthread_barrier_wait(&started);
	for (int i = 0; i < threads; i++)
		used += snprintf(line + used, sizeof(line) - (size_t)used, "%d%c", ids[i], i + 1 < threads ? ' ' : '\n');
	if (write(out, line, (size_t)used) != used)
		exit(1);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) : 1;
	char byte;

	for (int i = 0; i < processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (!pid)
			be_a_process(threads, STDOUT_FILENO);
	}
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	kill(0, SIGKILL);
	return 0;
}
