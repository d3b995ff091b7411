/* Shared by the floor servers: listen on a free port of 127.0.0.1 and print the port. */
#ifndef FLOOR_LISTEN_H
#define FLOOR_LISTEN_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static inline void set_nodelay(int fd)
{
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        perror("TCP_NODELAY");
}

static int listen_somewhere(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        fail("socket");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, len) != 0)
        fail("bind");
    if (listen(listener, 4096) != 0)
        fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &len) != 0)
        fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

#endif
