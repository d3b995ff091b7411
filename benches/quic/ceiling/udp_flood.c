/* The limit of UDP on this machine: a sender that floods, a receiver that counts, no protocol.
 *
 *     udp_flood plain|gso SIZE WARM-UP SECONDS
 *
 * plain: one datagram per call, both ways. gso: GSO batches, UDP_SEGMENT out and UDP_GRO in.
 * Prints what `benches/quic/running.py` reads: the receiver's counts at two times of its own clock.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { SEGMENTS_MAX = 64, TRAIN_BYTES_MAX = 65000, SOCKET_BUFFER = 4 << 20 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t cpu_ns(int who) {
    struct rusage usage;
    getrusage(who, &usage);
    return ((uint64_t)usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000 +
           ((uint64_t)usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static void send_for_ever(const struct sockaddr_in *to, int is_gso, size_t size, volatile uint64_t *sent) {
    static char bytes[TRAIN_BYTES_MAX];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), buffer = SOCKET_BUFFER, segment = (int)size;
    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof *to)) fail("connect");
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    size_t count = 1;
    if (is_gso) {
        count = TRAIN_BYTES_MAX / size < SEGMENTS_MAX ? TRAIN_BYTES_MAX / size : SEGMENTS_MAX;
        if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment)) fail("UDP_SEGMENT");
    }
    for (;;) {
        if (send(fd, bytes, size * count, 0) >= 0) *sent += count;
    }
}

struct counts {
    uint64_t bytes, datagrams;
};

static void receive(int fd, int is_gso, struct counts *counts) {
    static char bytes[1 << 16];
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = is_gso ? recvmsg(fd, &message, 0) : recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) return;
    int segment = (int)got;
    if (is_gso)
        for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
            if (one->cmsg_level == SOL_UDP && one->cmsg_type == UDP_GRO) memcpy(&segment, CMSG_DATA(one), sizeof segment);
    counts->bytes += got;
    counts->datagrams += (got + segment - 1) / segment;
}

static void print(const char *name, struct counts counts) {
    printf("\"%s\": {\"time_ns\": %lu, \"bytes\": %lu, \"datagrams\": %lu, \"cpu_ns\": %lu}, ", name, now_ns(), counts.bytes,
           counts.datagrams, cpu_ns(RUSAGE_SELF));
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "udp_flood plain|gso SIZE WARM-UP SECONDS\n"), 2;
    int is_gso = !strcmp(words[1], "gso"), buffer = SOCKET_BUFFER, on = 1;
    size_t size = strtoul(words[2], NULL, 10);
    double warmup = strtod(words[3], NULL), seconds = strtod(words[4], NULL);
    if (size < 1 || size > 65000) return fprintf(stderr, "SIZE: 1 to 65000\n"), 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    struct timeval patience = {.tv_usec = 100000};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) || getsockname(fd, (struct sockaddr *)&address, &len)) fail("bind");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (is_gso && setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on)) fail("UDP_GRO");

    volatile uint64_t *sent = mmap(NULL, sizeof *sent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sent == MAP_FAILED) fail("mmap");
    pid_t sender = fork();
    if (sender < 0) fail("fork");
    if (!sender) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        send_for_ever(&address, is_gso, size, sent);
    }
    struct counts counts = {0};
    uint64_t start = now_ns(), warm = start + (uint64_t)(warmup * 1e9), end = warm + (uint64_t)(seconds * 1e9);
    while (now_ns() < warm) receive(fd, is_gso, &counts);
    printf("{");
    print("first", counts);
    uint64_t sent_before = *sent;
    while (now_ns() < end) receive(fd, is_gso, &counts);
    print("last", counts);
    uint64_t sent_after = *sent;
    kill(sender, SIGKILL);
    wait(NULL);
    for (struct counts before = {1, 0}; before.bytes != counts.bytes;) {
        before = counts;
        receive(fd, is_gso, &counts);
    }
    print("end", counts);
    /* Only the total CPU time of the sender is known. */
    double share = seconds / (warmup + seconds);
    printf("\"seconds\": %f, \"cpu_ns\": %.0f, \"sent\": %lu, \"sent_total\": %lu, \"done\": 0}\n", seconds,
           cpu_ns(RUSAGE_CHILDREN) * share, sent_after - sent_before, *sent);
    return 0;
}
