//! Sockets over loopback: the invariants, and what each wrapper adds to its system call.

use super::*;
use crate::sys::address::UnixName;
use crate::sys::fd::AsRawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::testing::{in_child, tcp_pair, wait_until, with_calls_denied};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::net::{UnixDatagram, UnixStream};

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn loopback(port: u16) -> SockAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).into()
}

fn port_of(address: &SockAddr) -> u16 {
    address.to_std().unwrap().port()
}

fn tcp_socket() -> OwnedFd {
    socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap()
}

fn listener() -> (OwnedFd, SockAddr) {
    let listener = tcp_socket();
    bind(listener.as_raw_fd(), &loopback(0)).unwrap();
    listen(listener.as_raw_fd(), 8).unwrap();
    let address = local_addr(listener.as_raw_fd()).unwrap();
    (listener, address)
}

#[test]
fn s1_connect_accept_and_both_ends_know_each_other() {
    let (listener, address) = listener();
    assert_eq!(errno(accept(listener.as_raw_fd())), Some(libc::EAGAIN));
    let client = tcp_socket();
    assert_eq!(errno(peer_addr(client.as_raw_fd())), Some(libc::ENOTCONN));
    assert_eq!(errno(connect(client.as_raw_fd(), &address)), Some(libc::EINPROGRESS));
    wait_until(client.as_raw_fd(), Interest::WRITE);
    assert!(take_error(client.as_raw_fd()).unwrap().is_none());
    wait_until(listener.as_raw_fd(), Interest::READ);
    let server = accept(listener.as_raw_fd()).unwrap();
    let (client, server) = (client.as_raw_fd(), server.as_raw_fd());
    assert_eq!(peer_addr(client).unwrap(), address);
    assert_eq!(peer_addr(server).unwrap(), local_addr(client).unwrap());
}

#[test]
fn s1_a_refused_connect_leaves_its_error_to_be_taken_once() {
    let (listener, address) = listener();
    drop(listener);
    let client = tcp_socket();
    match errno(connect(client.as_raw_fd(), &address)) {
        Some(libc::ECONNREFUSED) => return,
        other => assert_eq!(other, Some(libc::EINPROGRESS)),
    }
    wait_until(client.as_raw_fd(), Interest::WRITE);
    let error = take_error(client.as_raw_fd()).unwrap().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    assert!(take_error(client.as_raw_fd()).unwrap().is_none());
}

#[test]
fn s2_a_receive_fills_the_front_and_leaves_the_rest_alone() {
    let (mut client, server) = tcp_pair();
    let mut buffer = [MaybeUninit::new(0xEE_u8); 8];
    assert_eq!(errno(recv(server.as_raw_fd(), &mut buffer, 0)), Some(libc::EAGAIN));
    client.write_all(b"abc").unwrap();
    wait_until(server.as_raw_fd(), Interest::READ);
    assert_eq!(recv(server.as_raw_fd(), &mut buffer, 0).unwrap(), 3);
    let bytes = buffer.map(|byte| {
        // SAFETY: every byte was initialised above.
        unsafe { byte.assume_init() }
    });
    assert_eq!(bytes, *b"abc\xEE\xEE\xEE\xEE\xEE");
    shutdown(client.as_raw_fd(), Shutdown::Write).unwrap();
    wait_until(server.as_raw_fd(), Interest::READ);
    assert_eq!(recv(server.as_raw_fd(), &mut buffer, 0).unwrap(), 0);
}

#[test]
fn s2_a_truncated_datagram_reports_its_full_size() {
    let (one, two) = UnixDatagram::pair().unwrap();
    one.send(b"0123456789").unwrap();
    let mut buffer = [MaybeUninit::new(0_u8); 4];
    assert_eq!(recv(two.as_raw_fd(), &mut buffer, libc::MSG_TRUNC).unwrap(), 10);
}

#[test]
fn s3_new_sockets_are_nonblocking_and_closed_on_exec() {
    let (listener, address) = listener();
    let client = tcp_socket();
    let _ = connect(client.as_raw_fd(), &address);
    wait_until(listener.as_raw_fd(), Interest::READ);
    let server = accept(listener.as_raw_fd()).unwrap();
    for fd in [&listener, &client, &server].map(AsRawFd::as_raw_fd) {
        // SAFETY: no pointer is passed.
        let status = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: no pointer is passed.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert!(status & libc::O_NONBLOCK != 0 && flags & libc::FD_CLOEXEC != 0);
    }
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_never_a_signal() {
    let survived = in_child(|| {
        // SAFETY: the child's own disposition; the default kills.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut ends = [0; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors.
        unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
        crate::sys::file::close(ends[1]).is_ok()
            && errno(send(ends[0], b"x", 0)) == Some(libc::EPIPE)
            && errno(send_vectored(ends[0], &[IoSlice::new(b"x")])) == Some(libc::EPIPE)
    });
    assert!(survived);
}

#[test]
fn s1_vectors_arrive_as_one_stream_also_beyond_what_one_call_takes() {
    let (one, mut two) = UnixStream::pair().unwrap();
    let sent = send_vectored(one.as_raw_fd(), &[IoSlice::new(b"ab"), IoSlice::new(b"cde")]);
    assert_eq!(sent.unwrap(), 5);
    let many = vec![IoSlice::new(b"x"); 1500];
    assert_eq!(send_vectored(one.as_raw_fd(), &many).unwrap(), 1024);
    assert_eq!(send_vectored(one.as_raw_fd(), &[]).unwrap(), 0);
    drop(one);
    let mut all = Vec::new();
    two.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 5 + 1024);
    assert!(all.starts_with(b"abcdex"));
}

#[test]
fn s1_messages_carry_bytes_and_the_senders_address() {
    let udp = || socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
    let (from, to) = (udp(), udp());
    bind(from.as_raw_fd(), &loopback(0)).unwrap();
    bind(to.as_raw_fd(), &loopback(0)).unwrap();
    let mut target = local_addr(to.as_raw_fd()).unwrap();
    let mut bytes = *b"ping";
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 4 };
    // SAFETY: all-zero bytes are a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_namelen = target.len();
    message.msg_name = target.as_mut_ptr().cast();
    // SAFETY: S1: all that the message points to is a live local.
    let sent = unsafe { sendmsg(from.as_raw_fd(), &raw const message, 0) };
    assert_eq!(sent.unwrap(), 4);

    wait_until(to.as_raw_fd(), Interest::READ);
    let mut sender = SockAddr::empty();
    message.msg_namelen = sender.len();
    message.msg_name = sender.as_mut_ptr().cast();
    bytes = [0; 4];
    // SAFETY: S1: all that the message points to is a live local.
    let received = unsafe { recvmsg(to.as_raw_fd(), &raw mut message, 0) };
    assert_eq!(received.unwrap(), 4);
    sender.set_len(message.msg_namelen);
    assert_eq!(&bytes, b"ping");
    assert_eq!(sender, local_addr(from.as_raw_fd()).unwrap());
}

#[test]
fn unix_sockets_know_their_names() {
    let name = format!("ringloop-test-{}", std::process::id());
    let address = SockAddr::unix(UnixName::Abstract(name.as_bytes())).unwrap();
    let server = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
    bind(server.as_raw_fd(), &address).unwrap();
    listen(server.as_raw_fd(), 1).unwrap();
    assert_eq!(local_addr(server.as_raw_fd()).unwrap(), address);
    let client = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
    connect(client.as_raw_fd(), &address).unwrap();
    let accepted = accept(server.as_raw_fd()).unwrap();
    assert_eq!(peer_addr(accepted.as_raw_fd()).unwrap().to_unix(), Some(UnixName::Unnamed));
    assert_eq!(peer_addr(client.as_raw_fd()).unwrap(), address);
}

#[test]
fn options_are_set_and_read_back() {
    let socket = tcp_socket();
    let fd = socket.as_raw_fd();
    let read = |level, name| get_option_int(fd, level, name).unwrap();
    set_nodelay(fd, true).unwrap();
    assert_ne!(read(libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
    set_nodelay(fd, false).unwrap();
    assert_eq!(read(libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
    set_reuse_address(fd, true).unwrap();
    assert_ne!(read(libc::SOL_SOCKET, libc::SO_REUSEADDR), 0);
    set_reuse_port(fd, true).unwrap();
    assert_ne!(read(libc::SOL_SOCKET, libc::SO_REUSEPORT), 0);
    assert_eq!(errno(get_option_int(fd, libc::SOL_SOCKET, 9999)), Some(libc::ENOPROTOOPT));
}

#[test]
fn two_listeners_share_a_port_only_when_both_say_so() {
    let shared = |port| {
        let socket = tcp_socket();
        set_reuse_port(socket.as_raw_fd(), true).unwrap();
        bind(socket.as_raw_fd(), &loopback(port)).map(|()| socket)
    };
    let one = shared(0).unwrap();
    let port = port_of(&local_addr(one.as_raw_fd()).unwrap());
    let two = shared(port).unwrap();
    assert_eq!(port_of(&local_addr(two.as_raw_fd()).unwrap()), port);
    assert_eq!(errno(bind(tcp_socket().as_raw_fd(), &loopback(port))), Some(libc::EADDRINUSE));
}

#[test]
fn a_foreign_descriptor_can_be_made_nonblocking() {
    let (one, _two) = UnixStream::pair().unwrap();
    set_nonblocking(one.as_raw_fd(), true).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 1];
    assert_eq!(errno(recv(one.as_raw_fd(), &mut buffer, 0)), Some(libc::EAGAIN));
    set_nonblocking(one.as_raw_fd(), false).unwrap();
    // SAFETY: no pointer is passed.
    let status = unsafe { libc::fcntl(one.as_raw_fd(), libc::F_GETFL) };
    assert_eq!(status & libc::O_NONBLOCK, 0);
    assert_eq!(errno(set_nonblocking(-1, true)), Some(libc::EBADF));
}

#[test]
fn shutdown_ends_one_direction() {
    let (client, server) = tcp_pair();
    shutdown(server.as_raw_fd(), Shutdown::Read).unwrap();
    shutdown(client.as_raw_fd(), Shutdown::Both).unwrap();
    assert_eq!(errno(send(client.as_raw_fd(), b"x", 0)), Some(libc::EPIPE));
    assert_eq!(errno(shutdown(tcp_socket().as_raw_fd(), Shutdown::Both)), Some(libc::ENOTCONN));
}

#[test]
fn s1_a_program_chooses_among_sockets_of_one_address() {
    let open = || socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
    let (first, second) = (open(), open());
    let mut port = 0;
    for one in [&first, &second] {
        set_reuse_port(one.as_raw_fd(), true).unwrap();
        bind(one.as_raw_fd(), &loopback(port)).unwrap();
        port = port_of(&local_addr(one.as_raw_fd()).unwrap());
    }
    // The payload's first byte is the socket's index.
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let program = [step(0x30, 0), step(0x16, 0)];
    set_reuse_port_program(first.as_raw_fd(), &program).unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (place, one) in [(1, &second), (0, &first), (1, &second)] {
        sender.send_to(&[place], ("127.0.0.1", port)).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 4];
        assert_eq!(recv(one.as_raw_fd(), &mut buffer, 0).unwrap(), 1);
    }
    let endless = [step(0x30, 0)];
    let refused = set_reuse_port_program(first.as_raw_fd(), &endless);
    assert_eq!(errno(refused), Some(libc::EINVAL));
}

#[test]
fn without_accept4_connections_are_accepted_and_closed_on_exec_all_the_same() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        with_calls_denied(&[libc::SYS_accept4], errno, || {
            let (listener, address) = listener();
            let none = accept(listener.as_raw_fd()).unwrap_err();
            assert_eq!(none.raw_os_error(), Some(libc::EAGAIN));
            let client = tcp_socket();
            // In progress: the backlog completes it.
            drop(connect(client.as_raw_fd(), &address));
            wait_until(listener.as_raw_fd(), Interest::READ);
            let new = accept(listener.as_raw_fd()).unwrap();
            assert!(file::is_nonblocking(new.as_raw_fd()).unwrap());
            // SAFETY: no pointer is passed.
            let flags = unsafe { libc::fcntl(new.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC);
        });
    }
}

#[test]
fn an_error_that_only_looks_like_a_refusal_is_returned() {
    let [real, wrong, full] =
        [libc::EPERM, libc::EBADF, libc::EAGAIN].map(io::Error::from_raw_os_error);
    assert!(!is_refused(&real, || Err::<(), _>(wrong)));
    let uncalled = || -> io::Result<()> { unreachable!("the call was not refused") };
    assert!(!is_refused(&full, uncalled));
}

#[test]
fn messages_are_kept_by_packet_pipes_and_sockets_that_are_no_streams() {
    let (reader, writer) = file::pipe().unwrap();
    assert!(!keeps_messages(reader.as_raw_fd()).unwrap());
    // SAFETY: no pointer is passed.
    let set = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) };
    assert_eq!(set, 0);
    assert!(keeps_messages(writer.as_raw_fd()).unwrap());
    for (kind, expected) in
        [(libc::SOCK_STREAM, false), (libc::SOCK_DGRAM, true), (libc::SOCK_SEQPACKET, true)]
    {
        let (one, _other) = pair(kind).unwrap();
        assert_eq!(keeps_messages(one.as_raw_fd()).unwrap(), expected);
    }
    assert_eq!(errno(keeps_messages(1 << 24)), Some(libc::EBADF));
}

#[test]
fn s1_message_and_its_source_are_received_and_a_failure_leaves_both() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut room, mut source) = ([MaybeUninit::new(b'-'); 4], SockAddr::empty());
    let mut receive = |flags| {
        let outcome = recv_from(socket.as_raw_fd(), &mut room, &mut source, flags);
        // SAFETY: it was written above.
        let bytes = room.map(|byte| unsafe { byte.assume_init() });
        (outcome, bytes, source.to_std())
    };
    let (nothing, bytes, from) = receive(libc::MSG_DONTWAIT);
    assert_eq!(errno(nothing), Some(libc::EAGAIN));
    assert_eq!((&bytes, from), (b"----", None));
    let to = socket.local_addr().unwrap();
    sender.send_to(b"abc", to).unwrap();
    let (count, bytes, from) = receive(0);
    assert_eq!((count.unwrap(), &bytes), (3, b"abc-"));
    assert_eq!(from, Some(sender.local_addr().unwrap()));
}
