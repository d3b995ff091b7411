/* A kernel that lacks something: preloaded into a process, it takes it out of what io_uring reports.
 *
 * Built and used by `episodes.py`. The engine makes its calls by syscall(3), which this stands in front
 * of. The environment says what is missing, as numbers of linux/io_uring.h:
 *   SOAK_FEATURES   bits of io_uring_params.features
 *   SOAK_FLAGS      set-up flags that are refused with EINVAL
 *   SOAK_OPERATIONS operations that the probe does not list, separated by commas
 *   SOAK_REGISTER   an opcode of io_uring_register(2) that is refused with EINVAL
 *   SOAK_NOTE       a file that gets a line each time something was taken out
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static long number_of(const char *name)
{
	const char *text = getenv(name);
	return text ? strtol(text, NULL, 0) : -1;
}

static void note(void)
{
	const char *path = getenv("SOAK_NOTE");
	int saved = errno, fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (fd >= 0) {
		if (write(fd, "1\n", 2) != 2)
			abort();
		close(fd);
	}
	errno = saved;
}

static long refused(void)
{
	note();
	errno = EINVAL;
	return -1;
}

static void without_features(struct io_uring_params *params)
{
	long bits = number_of("SOAK_FEATURES");
	if (bits > 0 && (params->features & bits)) {
		params->features &= ~bits;
		note();
	}
}

static void without_operations(struct io_uring_probe *probe)
{
	char *text = getenv("SOAK_OPERATIONS");
	while (text && *text) {
		long operation = strtol(text, &text, 0);
		if (operation >= 0 && operation < probe->ops_len &&
		    (probe->ops[operation].flags & IO_URING_OP_SUPPORTED)) {
			probe->ops[operation].flags &= ~IO_URING_OP_SUPPORTED;
			note();
		}
		text += *text == ',';
	}
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6], result, flags = number_of("SOAK_FLAGS");
	va_list list;

	if (!next)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	/* The highest bit says that the ring is named by its registered number. */
	long opcode = a[1] & 0x7fffffff;
	if (number == SYS_io_uring_setup && flags > 0 && (((struct io_uring_params *)a[1])->flags & flags))
		return refused();
	if (number == SYS_io_uring_register && opcode == number_of("SOAK_REGISTER"))
		return refused();
	result = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_io_uring_setup && result >= 0)
		without_features((struct io_uring_params *)a[1]);
	if (number == SYS_io_uring_register && result >= 0 && opcode == IORING_REGISTER_PROBE)
		without_operations((struct io_uring_probe *)a[2]);
	return result;
}
