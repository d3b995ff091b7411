/* A clock that counts its readings, preloaded by `hot_paths.py`: a microsecond passes with each.
 *
 * Under valgrind a process is fifty times slower, at a pace that changes. A loop that looks at the
 * clock to decide how long callbacks may run then does other work in every run; with this one it
 * does the same. It starts at the time of the kernel, which compares it with deadlines.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STEP_NANOSECONDS 1000L
#define SECOND_NANOSECONDS 1000000000L

static struct timespec start[2];
static atomic_long readings;

__attribute__((constructor)) static void begin(void) {
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &start[CLOCK_REALTIME]);
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &start[CLOCK_MONOTONIC]);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, now);
    long passed = STEP_NANOSECONDS * atomic_fetch_add(&readings, 1) + start[clock].tv_nsec;
    now->tv_sec = start[clock].tv_sec + passed / SECOND_NANOSECONDS;
    now->tv_nsec = passed % SECOND_NANOSECONDS;
    return 0;
}
