/* A kernel that refuses for a while: preloaded into a process, which says when by `ctypes`.
 *
 * Built by `refuse.interposer`. It stands in front of epoll_ctl(2), accept4(2) and syscall(3), by which
 * the engine enters its ring. A seccomp filter, which needs no compiler, refuses for good.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WATCH, ACCEPT, ENTER };

static struct {
	int error, skipped, left, operations;
} refused[3];

/* Past `skipped` calls the next `count` fail with `error`; of epoll_ctl(2) those whose operation is a bit of
 * `operations`. */
void refuse_calls(int which, int error, int skipped, int count, int operations)
{
	refused[which].error = error;
	refused[which].skipped = skipped;
	refused[which].operations = operations;
	refused[which].left = count;
}

int refusals_left(int which)
{
	return refused[which].left;
}

static int is_refused(int which)
{
	if (refused[which].left <= 0 || refused[which].skipped-- > 0)
		return 0;
	refused[which].left--;
	errno = refused[which].error;
	return 1;
}

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	static int (*next)(int, int, int, struct epoll_event *);

	if (!next)
		next = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");
	if ((refused[WATCH].operations >> operation & 1) && is_refused(WATCH))
		return -1;
	return next(set, operation, fd, event);
}

int accept4(int listener, struct sockaddr *restrict address, socklen_t *restrict len, int flags)
{
	static int (*next)(int, struct sockaddr *, socklen_t *, int);

	if (!next)
		next = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
	return is_refused(ACCEPT) ? -1 : next(listener, address, len, flags);
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list list;

	if (!next)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_io_uring_enter && is_refused(ENTER))
		return -1;
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
