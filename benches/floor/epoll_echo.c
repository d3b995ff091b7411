/* The floor: a TCP echo server with nothing between the kernel and the echo.
 *
 * Level-triggered epoll, one recv and one send per message, one 256 KiB buffer that stays in cache.
 * The limit of a single-threaded readiness-based server; every event loop is compared to it.
 *
 * Prints the port of 127.0.0.1 it listens on and serves until killed.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"

enum { BUFFER_LEN = 256 * 1024, EVENTS_MAX = 256 };

static char buffer[BUFFER_LEN];

/* Bytes the kernel did not accept at once; only then is memory allocated and output watched. */
struct connection {
    int fd;
    char *unsent;
    size_t unsent_len;
};

static void watch(int epoll, int operation, struct connection *connection, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll, operation, connection->fd, &event) != 0)
        fail("epoll_ctl");
}

static void end(struct connection *connection)
{
    close(connection->fd);
    free(connection->unsent);
    free(connection);
}

static void accept_one(int epoll, int listener)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        fail("calloc");
    connection->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection->fd < 0) {
        free(connection);
        return;
    }
    set_nodelay(connection->fd);
    watch(epoll, EPOLL_CTL_ADD, connection, EPOLLIN);
}

/* Stop reading until the rest of `data` has been sent. */
static int keep(int epoll, struct connection *connection, const char *data, size_t len)
{
    connection->unsent = malloc(len);
    if (connection->unsent == NULL)
        return -1;
    memcpy(connection->unsent, data, len);
    connection->unsent_len = len;
    watch(epoll, EPOLL_CTL_MOD, connection, EPOLLOUT);
    return 0;
}

static int on_input(int epoll, struct connection *connection)
{
    ssize_t received = recv(connection->fd, buffer, sizeof buffer, 0);
    if (received <= 0)
        return received < 0 && errno == EAGAIN ? 0 : -1;
    ssize_t sent = send(connection->fd, buffer, (size_t)received, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return -1;
    if (sent < 0)
        sent = 0;
    if (sent == received)
        return 0;
    return keep(epoll, connection, buffer + sent, (size_t)(received - sent));
}

static int on_output(int epoll, struct connection *connection)
{
    ssize_t sent = send(connection->fd, connection->unsent, connection->unsent_len, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN ? 0 : -1;
    connection->unsent_len -= (size_t)sent;
    if (connection->unsent_len > 0) {
        memmove(connection->unsent, connection->unsent + sent, connection->unsent_len);
        return 0;
    }
    free(connection->unsent);
    connection->unsent = NULL;
    watch(epoll, EPOLL_CTL_MOD, connection, EPOLLIN);
    return 0;
}

int main(void)
{
    int listener = listen_somewhere();
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        fail("epoll_create1");
    struct connection accepting = {.fd = listener};
    watch(epoll, EPOLL_CTL_ADD, &accepting, EPOLLIN);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        if (count < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int index = 0; index < count; index++) {
            struct connection *connection = events[index].data.ptr;
            if (connection == &accepting)
                accept_one(epoll, listener);
            else if ((connection->unsent != NULL ? on_output : on_input)(epoll, connection) != 0)
                end(connection);
        }
    }
}
