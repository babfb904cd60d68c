/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_counters kept|each ROUNDS: read the files whose paths standard input holds, one a line, ROUNDS times over, and
 * print the nanoseconds of each round. "kept" opens them once and then only calls pread; "each" opens, reads and closes
 * every file every time. Nothing is made of what was read: it is the limit that any reader can reach.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536

static char *paths[MOST];
static int files[MOST];

static void check(int ok, const char *path)
{
	if (!ok) {
		perror(path);
		exit(1);
	}
}

static void read_kept(int count)
{
	char text[64];

	for (int i = 0; i < count; i++)
		check(pread(files[i], text, sizeof(text), 0) > 0, paths[i]);
}

static void read_each(int count)
{
	char text[64];

	for (int i = 0; i < count; i++) {
		int file = open(paths[i], O_RDONLY | O_CLOEXEC);

		check(file >= 0 && read(file, text, sizeof(text)) > 0, paths[i]);
		close(file);
	}
}

int main(int argc, char **argv)
{
	struct timespec before, after;
	char line[4096];
	int count = 0;
	int keep, rounds;

	if (argc != 3)
		return 2;
	keep = !strcmp(argv[1], "kept");
	rounds = atoi(argv[2]);
	while (count < MOST && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		paths[count++] = strdup(line);
	}
	for (int i = 0; keep && i < count; i++) {
		files[i] = open(paths[i], O_RDONLY | O_CLOEXEC);
		check(files[i] >= 0, paths[i]);
	}
	for (int round = 0; round < rounds; round++) {
		clock_gettime(CLOCK_MONOTONIC, &before);
		if (keep)
			read_kept(count);
		else
			read_each(count);
		clock_gettime(CLOCK_MONOTONIC, &after);
		printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec);
	}
	return 0;
}
