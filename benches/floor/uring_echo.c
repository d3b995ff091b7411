/* The other floor: a TCP echo server with nothing between io_uring and the echo.
 *
 * Uses the raw system calls, without a library. A short message arrives by a multishot receive in a
 * provided buffer and is sent from that buffer, by the same system call that waits for the next
 * completions. A connection whose messages fill several buffers is served as with epoll: a poll,
 * then recv and send through one buffer that stays in cache. The limit of one thread on a ring.
 *
 * Prints the port of 127.0.0.1 it listens on and serves until killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "listen.h"

enum {
    ENTRIES = 4096,
    LENT_LEN = 16 * 1024,
    LENT_COUNT = 256, /* the messages in flight at once are those of one batch */
    FULL_MAX = 2,     /* consecutive full buffers that make a connection a bulk one */
    HOT_LEN = 256 * 1024,
};

enum part { ACCEPT, RECEIVE, SEND, READY, CANCEL };

struct connection {
    int fd;
    int full_count;
    int is_bulk;
    /* Bulk: bytes the kernel did not accept at once. */
    char *unsent;
    size_t unsent_len;
};

/* A send in flight from a provided buffer; the buffer's number identifies it. */
struct sending {
    struct connection *connection;
    unsigned start, len;
    struct sending *next; /* of the same connection, to be sent after it */
    struct sending *last;
};

static int ring;
static unsigned *sq_head, *sq_tail, sq_mask, *cq_head, *cq_tail, cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static struct io_uring_buf_ring *lent_ring;
static char *lent;
static uint16_t lent_tail;
static char hot[HOT_LEN] __attribute__((aligned(64)));
static struct sending sendings[LENT_COUNT];
/* The buffer in flight of each connection; indexed by descriptor. */
static struct sending *head_of[1 << 16];
static struct connection *starved[1 << 16];
static unsigned starved_count;

static int enter(unsigned want)
{
    unsigned queued = *sq_tail - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE);
    return (int)syscall(SYS_io_uring_enter, ring, queued, want,
                        IORING_ENTER_GETEVENTS | IORING_ENTER_REGISTERED_RING, NULL, 0);
}

static struct io_uring_sqe *next_entry(void *pointer, enum part part)
{
    while (*sq_tail - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE) > sq_mask)
        enter(0);
    struct io_uring_sqe *sqe = &sqes[*sq_tail & sq_mask];
    memset(sqe, 0, sizeof *sqe);
    sqe->user_data = (uint64_t)(uintptr_t)pointer | part;
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
    return sqe;
}

static void lend(unsigned id)
{
    struct io_uring_buf *buf = &lent_ring->bufs[lent_tail & (LENT_COUNT - 1)];
    buf->addr = (uint64_t)(uintptr_t)(lent + (size_t)id * LENT_LEN);
    buf->len = LENT_LEN;
    buf->bid = (uint16_t)id;
    __atomic_store_n(&lent_ring->tail, ++lent_tail, __ATOMIC_RELEASE);
}

static void arm_accept(int listener)
{
    struct io_uring_sqe *sqe = next_entry(NULL, ACCEPT);
    sqe->opcode = IORING_OP_ACCEPT;
    sqe->fd = listener;
    sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    sqe->accept_flags = SOCK_CLOEXEC;
}

static void arm_receive(struct connection *connection)
{
    struct io_uring_sqe *sqe = next_entry(connection, RECEIVE);
    sqe->opcode = IORING_OP_RECV;
    sqe->fd = connection->fd;
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->ioprio = IORING_RECV_MULTISHOT;
}

static void arm_poll(struct connection *connection, unsigned events)
{
    struct io_uring_sqe *sqe = next_entry(connection, READY);
    sqe->opcode = IORING_OP_POLL_ADD;
    sqe->fd = connection->fd;
    sqe->poll32_events = events;
}

static void arm_send(struct sending *sending)
{
    struct io_uring_sqe *sqe = next_entry(sending, SEND);
    sqe->opcode = IORING_OP_SEND;
    sqe->fd = sending->connection->fd;
    sqe->addr = (uint64_t)(uintptr_t)(lent + (size_t)(sending - sendings) * LENT_LEN + sending->start);
    sqe->len = sending->len - sending->start;
    sqe->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
}

static void end(struct connection *connection)
{
    /* A send that still waits for the peer ends too; the connections of a run last. */
    shutdown(connection->fd, SHUT_RDWR);
    close(connection->fd);
    free(connection->unsent);
    free(connection);
}

static void on_accept(int listener, const struct io_uring_cqe *cqe)
{
    if (cqe->res >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        if (connection == NULL || cqe->res >= 1 << 16)
            fail("accept");
        connection->fd = cqe->res;
        head_of[connection->fd] = NULL;
        set_nodelay(connection->fd);
        arm_receive(connection);
    }
    if (!(cqe->flags & IORING_CQE_F_MORE))
        arm_accept(listener);
}

static void on_receive(struct connection *connection, const struct io_uring_cqe *cqe)
{
    int more = (cqe->flags & IORING_CQE_F_MORE) != 0;
    if (cqe->res <= 0) {
        if (cqe->res == -ENOBUFS)
            starved[starved_count++] = connection;
        else if (cqe->res == -ECANCELED)
            arm_poll(connection, POLLIN);
        else if (head_of[connection->fd] == NULL)
            end(connection);
        return;
    }
    unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
    struct sending *sending = &sendings[id];
    *sending = (struct sending){.connection = connection, .len = (unsigned)cqe->res};
    struct sending *head = head_of[connection->fd];
    if (head == NULL) {
        head_of[connection->fd] = sending;
        sending->last = sending;
        arm_send(sending);
    } else { /* one send in flight per connection, or bytes are reordered */
        head->last->next = sending;
        head->last = sending;
    }
    connection->full_count = cqe->res == LENT_LEN ? connection->full_count + 1 : 0;
    if (connection->full_count == FULL_MAX && !connection->is_bulk) {
        connection->is_bulk = 1;
        if (more) {
            struct io_uring_sqe *sqe = next_entry(NULL, CANCEL);
            sqe->opcode = IORING_OP_ASYNC_CANCEL;
            sqe->addr = (uint64_t)(uintptr_t)connection | RECEIVE;
            sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
        } else {
            arm_poll(connection, POLLIN);
        }
    } else if (!more) {
        arm_receive(connection);
    }
}

static void on_send(struct sending *sending, const struct io_uring_cqe *cqe)
{
    struct connection *connection = sending->connection;
    sending->start += cqe->res > 0 ? (unsigned)cqe->res : sending->len - sending->start;
    if (sending->start < sending->len) {
        arm_send(sending);
        return;
    }
    struct sending *next = sending->next;
    if (next != NULL) {
        next->last = sending->last;
        arm_send(next);
    }
    head_of[connection->fd] = next;
    lend((unsigned)(sending - sendings));
}

static void on_ready(struct connection *connection)
{
    if (head_of[connection->fd] != NULL) { /* data of the multishot receive goes first */
        arm_poll(connection, POLLIN);
        return;
    }
    if (connection->unsent != NULL) {
        ssize_t sent = send(connection->fd, connection->unsent, connection->unsent_len,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            return end(connection);
        sent = sent < 0 ? 0 : sent;
        connection->unsent_len -= (size_t)sent;
        memmove(connection->unsent, connection->unsent + sent, connection->unsent_len);
        if (connection->unsent_len > 0)
            return arm_poll(connection, POLLOUT);
        free(connection->unsent);
        connection->unsent = NULL;
        return arm_poll(connection, POLLIN);
    }
    ssize_t received = recv(connection->fd, hot, sizeof hot, MSG_DONTWAIT);
    if (received == 0 || (received < 0 && errno != EAGAIN))
        return end(connection);
    ssize_t sent = 0;
    if (received > 0) {
        sent = send(connection->fd, hot, (size_t)received, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            return end(connection);
        sent = sent < 0 ? 0 : sent;
        if (sent < received) {
            connection->unsent_len = (size_t)(received - sent);
            connection->unsent = malloc(connection->unsent_len);
            if (connection->unsent == NULL)
                return end(connection);
            memcpy(connection->unsent, hot + sent, connection->unsent_len);
        }
    }
    arm_poll(connection, connection->unsent != NULL ? POLLOUT : POLLIN);
}

static void *mapped(size_t len, int fd, off_t offset)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_POPULATE;
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, offset);
    if (at == MAP_FAILED)
        fail("mmap");
    return at;
}

static void set_up(void)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER |
                 IORING_SETUP_DEFER_TASKRUN,
        .cq_entries = 4 * ENTRIES,
    };
    int fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (fd < 0)
        fail("io_uring_setup");
    size_t sq_len = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_len = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    char *queues = mapped(sq_len > cq_len ? sq_len : cq_len, fd, IORING_OFF_SQ_RING);
    sqes = mapped(params.sq_entries * sizeof *sqes, fd, IORING_OFF_SQES);
    sq_head = (unsigned *)(queues + params.sq_off.head);
    sq_tail = (unsigned *)(queues + params.sq_off.tail);
    sq_mask = params.sq_entries - 1;
    for (unsigned index = 0; index < params.sq_entries; index++)
        ((unsigned *)(queues + params.sq_off.array))[index] = index;
    cq_head = (unsigned *)(queues + params.cq_off.head);
    cq_tail = (unsigned *)(queues + params.cq_off.tail);
    cq_mask = params.cq_entries - 1;
    cqes = (struct io_uring_cqe *)(queues + params.cq_off.cqes);

    struct io_uring_rsrc_update update = {.offset = -1U, .data = (uint64_t)fd};
    if (syscall(SYS_io_uring_register, fd, IORING_REGISTER_RING_FDS, &update, 1) != 1)
        fail("IORING_REGISTER_RING_FDS");
    ring = (int)update.offset;

    lent = mapped((size_t)LENT_COUNT * LENT_LEN, -1, 0);
    lent_ring = mapped(LENT_COUNT * sizeof(struct io_uring_buf), -1, 0);
    struct io_uring_buf_reg buffers = {
        .ring_addr = (uint64_t)(uintptr_t)lent_ring, .ring_entries = LENT_COUNT, .bgid = 0};
    if (syscall(SYS_io_uring_register, fd, IORING_REGISTER_PBUF_RING, &buffers, 1) != 0)
        fail("IORING_REGISTER_PBUF_RING");
    for (unsigned id = 0; id < LENT_COUNT; id++)
        lend(id);
}

static void dispatch(int listener, const struct io_uring_cqe *cqe)
{
    void *pointer = (void *)(uintptr_t)(cqe->user_data & ~(uint64_t)7);
    switch ((enum part)(cqe->user_data & 7)) {
    case ACCEPT:
        on_accept(listener, cqe);
        break;
    case RECEIVE:
        on_receive(pointer, cqe);
        break;
    case SEND:
        on_send(pointer, cqe);
        break;
    case READY:
        on_ready(pointer);
        break;
    case CANCEL:
        break;
    }
}

int main(void)
{
    int listener = listen_somewhere();
    set_up();
    arm_accept(listener);
    for (;;) {
        if (enter(1) < 0 && errno != EINTR && errno != EBUSY && errno != EAGAIN)
            fail("io_uring_enter");
        unsigned head = *cq_head;
        while (head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) {
            dispatch(listener, &cqes[head & cq_mask]);
            __atomic_store_n(cq_head, ++head, __ATOMIC_RELEASE);
        }
        for (unsigned index = 0; index < starved_count; index++) {
            if (starved[index]->is_bulk)
                arm_poll(starved[index], POLLIN);
            else
                arm_receive(starved[index]);
        }
        starved_count = 0;
    }
}
