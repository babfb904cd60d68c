/* SPDX-License-Identifier: Apache-2.0 */
/*
 * system_calls: the limit of what any client can reach. It is told beforehand which system calls to make, and makes
 * them, and nothing else, when told to go. Lines on standard input:
 *
 *   queue N       what follows is for queue N (0 to 7)
 *   open PATH     open a file for writing
 *   write TEXT    write a line to it
 *   close         close it
 *   read PATH     open a file, read it to its end, where a read is short, close it
 *   pread PATH    read the first bytes of a file that was opened when this line came, and stays open
 *   count TID     read a group of four of the kernel's own events (perf) of a task, opened when this line came
 *   mkdir PATH    make a directory
 *   list PATH     read the names in a directory
 *   stat PATH     ask for a file's status
 *   lock PATH     take the exclusive lock on a directory, and give it back
 *   go N          make the calls of queue N; prints the nanoseconds they took, on the clock and of CPU time
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUEUES 8
#define LINE 8192

enum kind { OPEN, WRITE, CLOSE, READ, PREAD, COUNT, MKDIR, LIST, STAT, LOCK };

struct call {
	enum kind kind;
	char *text;
	size_t size;
	int file;
};

static struct queue {
	struct call *calls;
	size_t count;
} queues[QUEUES];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int count_task(pid_t task)
{
	static const unsigned long events[] = { PERF_COUNT_SW_TASK_CLOCK, PERF_COUNT_SW_CONTEXT_SWITCHES,
						PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_CPU_MIGRATIONS };
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.inherit = 1,
		.inherit_thread = 1,
	};
	int leader = -1, file;

	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		attr.config = events[i];
		file = (int)syscall(SYS_perf_event_open, &attr, task, -1, leader, PERF_FLAG_FD_CLOEXEC);
		if (file < 0)
			die("perf_event_open");
		if (leader < 0)
			leader = file;
	}
	return leader;
}

static void add(struct queue *queue, enum kind kind, const char *text)
{
	struct call *call;

	queue->calls = realloc(queue->calls, (queue->count + 1) * sizeof(*queue->calls));
	call = &queue->calls[queue->count++];
	call->kind = kind;
	call->text = strdup(text);
	if (kind != WRITE)
		call->text[strcspn(call->text, "\n")] = '\0';
	call->size = strlen(call->text);
	if (kind == PREAD) {
		call->file = open(call->text, O_RDONLY | O_CLOEXEC);
		if (call->file < 0)
			die(call->text);
	}
	if (kind == COUNT)
		call->file = count_task(atoi(call->text));
}

static void read_file(const char *path)
{
	static char buffer[65536];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (file < 0)
		die(path);
	while ((got = read(file, buffer, sizeof(buffer))) == sizeof(buffer))
		;
	if (got < 0)
		die(path);
	close(file);
}

static void list_names(const char *path)
{
	DIR *directory = opendir(path);

	if (!directory)
		die(path);
	while (readdir(directory))
		;
	closedir(directory);
}

static void take_lock(const char *path)
{
	int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (file < 0 || flock(file, LOCK_EX | LOCK_NB))
		die(path);
	close(file);
}

static void make(const struct queue *queue)
{
	char bytes[512];
	struct stat status;
	int file = -1;

	for (const struct call *call = queue->calls; call < queue->calls + queue->count; call++)
		switch (call->kind) {
		case OPEN:
			file = open(call->text, O_WRONLY | O_CLOEXEC);
			if (file < 0)
				die(call->text);
			break;
		case WRITE:
			if (write(file, call->text, call->size) != (ssize_t)call->size)
				die("write");
			break;
		case CLOSE:
			close(file);
			break;
		case READ:
			read_file(call->text);
			break;
		case PREAD:
			if (pread(call->file, bytes, 64, 0) <= 0)
				die(call->text);
			break;
		case COUNT:
			if (read(call->file, bytes, sizeof(bytes)) <= 0)
				die(call->text);
			break;
		case MKDIR:
			if (mkdir(call->text, 0755))
				die(call->text);
			break;
		case LIST:
			list_names(call->text);
			break;
		case STAT:
			if (stat(call->text, &status))
				die(call->text);
			break;
		case LOCK:
			take_lock(call->text);
			break;
		}
}

static long nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void go(const struct queue *queue)
{
	long wall = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);

	make(queue);
	cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	wall = nanoseconds(CLOCK_MONOTONIC) - wall;
	printf("%ld %ld\n", wall, cpu);
	fflush(stdout);
}

int main(void)
{
	static char line[LINE];
	struct queue *queue = queues;

	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "queue ", 6))
			queue = &queues[atoi(line + 6) % QUEUES];
		else if (!strncmp(line, "open ", 5))
			add(queue, OPEN, line + 5);
		else if (!strncmp(line, "write ", 6))
			add(queue, WRITE, line + 6);
		else if (!strncmp(line, "close", 5))
			add(queue, CLOSE, "");
		else if (!strncmp(line, "read ", 5))
			add(queue, READ, line + 5);
		else if (!strncmp(line, "pread ", 6))
			add(queue, PREAD, line + 6);
		else if (!strncmp(line, "count ", 6))
			add(queue, COUNT, line + 6);
		else if (!strncmp(line, "mkdir ", 6))
			add(queue, MKDIR, line + 6);
		else if (!strncmp(line, "list ", 5))
			add(queue, LIST, line + 5);
		else if (!strncmp(line, "stat ", 5))
			add(queue, STAT, line + 5);
		else if (!strncmp(line, "lock ", 5))
			add(queue, LOCK, line + 5);
		else if (!strncmp(line, "go ", 3))
			go(&queues[atoi(line + 3) % QUEUES]);
	}
	return 0;
}
