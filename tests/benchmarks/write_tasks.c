/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_tasks FILE: move the task ids that standard input holds into the resctrl group whose tasks file this is, by
 * comma-joined writes of up to 4095 bytes and nothing else, and print the nanoseconds it took. It is the limit that
 * any client can reach.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 4095

int main(int argc, char **argv)
{
	static char batches[4096][MOST + 1];
	static int sizes[4096];
	struct timespec before, after;
	int count = 0, used = 0, id, file;
	char word[16];

	while (scanf("%d", &id) == 1) {
		int length = snprintf(word, sizeof(word), "%d", id);

		if (used + length + 2 > MOST) {
			batches[count][used - 1] = '\n';
			sizes[count++] = used;
			used = 0;
		}
		memcpy(batches[count] + used, word, (size_t)length);
		used += length;
		batches[count][used++] = ',';
	}
	if (used) {
		batches[count][used - 1] = '\n';
		sizes[count++] = used;
	}
	clock_gettime(CLOCK_MONOTONIC, &before);
	file = open(argv[argc - 1], O_WRONLY);
	for (int i = 0; i < count; i++)
		if (write(file, batches[i], (size_t)sizes[i]) != sizes[i]) {
			perror(argv[argc - 1]);
			return 1;
		}
	close(file);
	clock_gettime(CLOCK_MONOTONIC, &after);
	printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec);
	return 0;
}
