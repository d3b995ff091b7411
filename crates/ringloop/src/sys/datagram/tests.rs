use super::*;
use crate::sys::address::SockAddr;
use crate::sys::fd::AsRawFd;
use crate::sys::libc;
use crate::sys::testing::with_calls_denied;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;

const RUN: usize = 100;

fn pair() -> (UdpSocket, UdpSocket) {
    let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    (a, b)
}

fn to(socket: &UdpSocket) -> SockAddr {
    SockAddr::from(socket.local_addr().unwrap())
}

/// Sends all of them; returns the number sent by each call.
fn send_all(
    from: &UdpSocket,
    datagrams: &[(Vec<u8>, Option<SockAddr>)],
    segmented: bool,
) -> Vec<usize> {
    let mut outgoing = Outgoing::default();
    let mut counts: Vec<usize> = Vec::new();
    loop {
        let rest = &datagrams[counts.iter().sum()..];
        if rest.is_empty() {
            return counts;
        }
        let batch = rest.iter().map(|(bytes, to)| (&**bytes, to.as_ref()));
        let sent = outgoing.send(from.as_raw_fd(), batch, segmented);
        counts.push(sent.unwrap());
    }
}

/// Receives all that is queued: one entry per message, which lists its datagrams.
fn receive_all(on: &UdpSocket, batch: &mut Batch, control: Control) -> Vec<Vec<Vec<u8>>> {
    let mut seen = Vec::new();
    while let Ok(count) = batch.receive(on.as_raw_fd(), control, usize::MAX) {
        assert_eq!(batch.received().count(), count);
        let messages = batch.received();
        seen.extend(messages.map(|message| message.datagrams().map(<[u8]>::to_vec).collect()));
    }
    seen
}

#[test]
fn d2_a_batch_holds_each_datagram_with_its_source_in_order() {
    let (a, b) = pair();
    let datagrams: Vec<_> = (0..40u8).map(|n| (vec![n; usize::from(n)], Some(to(&b)))).collect();
    assert_eq!(send_all(&a, &datagrams, false), [32, 8]);
    let mut batch = Batch::new(20, 64).unwrap();
    let mut seen = Vec::new();
    for control in [Control::Unwanted, Control::Wanted] {
        let count = batch.receive(b.as_raw_fd(), control, 100).unwrap();
        assert_eq!(count, 20);
        for message in batch.received() {
            assert_eq!(message.source.to_std(), Some(a.local_addr().unwrap()));
            assert!(!message.is_cut());
            seen.extend(message.datagrams().map(<[u8]>::to_vec));
        }
    }
    let sent: Vec<_> = datagrams.into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(seen, sent);
    let nothing = batch.receive(b.as_raw_fd(), Control::Unwanted, 1);
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(batch.received().count(), 0);
}

#[test]
fn d3_a_batch_without_memory_is_an_error() {
    let refused = Batch::new(1, 1 << 46).map(drop).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM));
    assert_eq!(Batch::new(3, 100).unwrap().received().count(), 0);
}

#[test]
fn d2_a_longer_datagram_is_cut_to_its_slot() {
    let (a, b) = pair();
    assert_eq!(send_to(a.as_raw_fd(), &[7; 100], &to(&b)).unwrap(), 100);
    assert_eq!(send_to(a.as_raw_fd(), &[8; 3], &to(&b)).unwrap(), 3);
    let mut batch = Batch::new(2, 10).unwrap();
    let received = batch.receive(b.as_raw_fd(), Control::Unwanted, 2);
    assert_eq!(received.unwrap(), 2);
    let messages: Vec<_> =
        batch.received().map(|message| (message.payload.to_vec(), message.is_cut())).collect();
    assert_eq!(messages, [(vec![7; 10], true), (vec![8; 3], false)]);
}

#[test]
fn d2_a_buffer_without_room_for_a_head_takes_part_in_nothing() {
    let (a, b) = pair();
    send_to(a.as_raw_fd(), b"x", &to(&b)).unwrap();
    send_to(a.as_raw_fd(), b"y", &to(&b)).unwrap();
    let mut buffers = [vec![0; HEAD_LEN + 1], vec![0; HEAD_LEN - 1], vec![0; HEAD_LEN + 1]];
    let lent = buffers.iter_mut().map(Vec::as_mut_slice);
    let mut receiver = Receiver::default();
    let filled: Vec<_> =
        receiver.receive(b.as_raw_fd(), Control::Unwanted, lent).unwrap().collect();
    assert_eq!(filled, [HEAD_LEN + 1]);
    assert_eq!(Message::parse(&buffers[0]).unwrap().payload, b"x");
    assert!(buffers[1].iter().all(|byte| *byte == 0));
}

#[test]
fn runs_of_equal_datagrams_go_out_as_one_message_and_arrive_one_by_one() {
    let (a, b) = pair();
    let (other, _) = pair();
    let connected = |len: usize, fill: u8| (vec![fill; len], Some(to(&b)));
    let mut datagrams: Vec<_> = (0..RUN as u8).map(|n| connected(40, n)).collect();
    // A shorter one ends a run, a longer one begins one; empty ones and other peers stand alone.
    datagrams
        .extend([(10, 1), (30, 2), (30, 3), (50, 4), (0, 5), (0, 6)].map(|(l, f)| connected(l, f)));
    datagrams.push((vec![7; 5], Some(to(&other))));
    datagrams.extend([connected(5, 8), connected(5, 9)]);
    assert_eq!(send_all(&a, &datagrams, true), [datagrams.len()]);
    let mut batch = Batch::new(8, 65_536).unwrap();
    let seen = receive_all(&b, &mut batch, Control::Wanted).concat();
    datagrams.retain(|(_, peer)| *peer == Some(to(&b)));
    let sent: Vec<_> = datagrams.into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(seen, sent);
}

#[test]
fn a_gso_batch_is_one_message_if_enabled() {
    let (a, b) = pair();
    set_gro(b.as_raw_fd(), true).unwrap();
    let mut datagrams: Vec<_> = (0..10).map(|n| (vec![n; 1000], Some(to(&b)))).collect();
    datagrams.push((vec![10; 1], Some(to(&b))));
    datagrams.push((vec![], Some(to(&b))));
    send_all(&a, &datagrams, true);
    let mut batch = Batch::new(8, 65_536).unwrap();
    let seen = receive_all(&b, &mut batch, Control::Wanted);
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [11, 1]);
    let sent: Vec<_> = datagrams.iter().map(|(bytes, _)| bytes.clone()).collect();
    assert_eq!(seen.concat(), sent);
    // Disabled again, each comes alone.
    set_gro(b.as_raw_fd(), false).unwrap();
    send_all(&a, &datagrams, true);
    assert_eq!(receive_all(&b, &mut batch, Control::Wanted).len(), 12);
}

#[test]
fn errors_of_segmentation_are_recognised() {
    let (a, b) = pair();
    socket::set_option_int(a.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let address = to(&b);
    let batch = || [(&b"one"[..], Some(&address)), (&b"two"[..], Some(&address))].into_iter();
    let mut outgoing = Outgoing::default();
    let refused = outgoing.send(a.as_raw_fd(), batch(), true).unwrap_err();
    assert!(refused.is_of_segmentation(), "{refused:?}");
    assert_eq!(outgoing.send(a.as_raw_fd(), batch(), false).unwrap(), 2);
    let mut received = Batch::new(4, 10).unwrap();
    let seen = receive_all(&b, &mut received, Control::Unwanted).concat();
    assert_eq!(seen, [b"one", b"two"]);
    // A single datagram's error is not one of segmentation.
    let long = vec![0; 70_000];
    let single = [(&*long, Some(&address))].into_iter();
    let refused = outgoing.send(a.as_raw_fd(), single, true).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::EMSGSIZE));
    assert!(!refused.is_of_segmentation());
}

#[test]
fn errors_are_the_kernels() {
    let (a, b) = pair();
    let mut outgoing = Outgoing::default();
    let unconnected = outgoing.send(a.as_raw_fd(), std::iter::once((&b"x"[..], None)), true);
    let errno = unconnected.unwrap_err().error.raw_os_error();
    assert_eq!(errno, Some(libc::EDESTADDRREQ));
    let long = send_to(a.as_raw_fd(), &vec![0; 70_000], &to(&b)).unwrap_err();
    assert_eq!(long.raw_os_error(), Some(libc::EMSGSIZE));
}

#[test]
fn names_of_unix_sockets_are_whole_and_descriptors_stay_out() {
    let dir = std::env::temp_dir().join(format!("ringloop-datagram-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("x".repeat(100 - dir.as_os_str().len()));
    let (ours, theirs) = (UnixDatagram::bind(&path).unwrap(), UnixDatagram::unbound().unwrap());
    let named = UnixDatagram::bind(dir.join("named")).unwrap();
    ours.set_nonblocking(true).unwrap();
    named.send_to(b"named", &path).unwrap();
    theirs.send_to(b"nameless", &path).unwrap();
    let mut batch = Batch::new(2, 100).unwrap();
    assert_eq!(batch.receive(ours.as_raw_fd(), Control::Unwanted, 2).unwrap(), 2);
    let sources: Vec<_> =
        batch.received().map(|message| (message.payload.to_vec(), message.source)).collect();
    assert_eq!(sources[0].0, b"named");
    let expected = dir.join("named");
    assert_eq!(sources[0].1.to_unix(), Some(crate::sys::address::UnixName::Path(&expected)));
    assert_eq!((sources[1].0.as_slice(), sources[1].1.len()), (&b"nameless"[..], 0));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_is_no_message_is_none() {
    assert!(Message::parse(&[0; HEAD_LEN - 1]).is_none());
    // Wrong lengths are bounded by the buffer.
    let mut buffer = vec![0; HEAD_LEN + 4];
    buffer[..16].copy_from_slice(&head_of(usize::MAX, 0, usize::MAX, 0));
    let message = Message::parse(&buffer).unwrap();
    assert_eq!((message.payload.len(), message.source.len()), (4, 112));
    buffer[..16].copy_from_slice(&head_of(0, CONTROL_ROOM + 1, 4, 0));
    assert!(Message::parse(&buffer).is_none());
    // A control message longer than the control data ends the search.
    buffer[..16].copy_from_slice(&head_of(0, 16, 4, libc::MSG_TRUNC));
    buffer[128..136].copy_from_slice(&usize::MAX.to_ne_bytes());
    let message = Message::parse(&buffer).unwrap();
    assert_eq!(message.control(libc::SOL_UDP, libc::UDP_GRO), None);
    assert!(message.is_cut());
    assert_eq!(message.datagrams().count(), 1);
}

#[test]
fn a_gso_batch_carries_its_ecn_bits_and_its_local_address() {
    for (host, other) in [("127.0.0.1", "127.0.0.2"), ("::1", "::1")] {
        let [a, b] = [(); 2].map(|()| UdpSocket::bind((host, 0)).unwrap());
        let fd = b.as_raw_fd();
        b.set_nonblocking(true).unwrap();
        set_gro(fd, true).unwrap();
        set_receive_ecn(fd, true).unwrap();
        set_receive_local_ip(fd, true).unwrap();
        set_unfragmented(a.as_raw_fd()).unwrap();
        drop(a);
        // Bound to every address, it leaves from the given one.
        let any = if host == "::1" { "::" } else { "0.0.0.0" };
        let a = UdpSocket::bind((any, 0)).unwrap();
        let sent = GsoBatch {
            bytes: &[7; 250],
            segment_len: Some(100),
            to: b.local_addr().unwrap(),
            source: Some(other.parse().unwrap()),
            ecn: 2,
        };
        send_gso(a.as_raw_fd(), &sent).unwrap();
        let mut batch = Batch::new(4, 65_536).unwrap();
        assert_eq!(batch.receive(fd, Control::Wanted, 4).unwrap(), 1);
        let message = batch.received().next().unwrap();
        assert_eq!(message.ecn(), 2);
        assert_eq!(message.local_ip().unwrap(), host.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(message.source.to_std().unwrap().ip().to_string(), other);
        assert_eq!(message.segment_len(), Some(100));
        let lens: Vec<usize> = message.datagrams().map(<[u8]>::len).collect();
        assert_eq!(lens, [100, 100, 50]);
        // Not longer than a segment: a single datagram, without control data.
        let plain = GsoBatch { bytes: b"one", segment_len: Some(3), source: None, ecn: 0, ..sent };
        send_gso(a.as_raw_fd(), &plain).unwrap();
        assert_eq!(batch.receive(fd, Control::Wanted, 4).unwrap(), 1);
        let message = batch.received().next().unwrap();
        assert_eq!((message.payload, message.ecn()), (&b"one"[..], 0));
    }
}

#[test]
fn a_gso_batch_to_the_other_family_uses_the_routes_source() {
    let Ok(a) = UdpSocket::bind("[::]:0") else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    for (host, source) in [("::1", "::ffff:127.0.0.1"), ("::1", "127.0.0.1"), ("127.0.0.1", "::1")]
    {
        let b = UdpSocket::bind((host, 0)).unwrap();
        b.set_nonblocking(true).unwrap();
        let port = b.local_addr().unwrap().port();
        let to = match b.local_addr().unwrap().ip() {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), port).into(),
            IpAddr::V6(v6) => (v6, port).into(),
        };
        let sent = GsoBatch {
            bytes: &[7; 150],
            segment_len: Some(100),
            to,
            source: Some(source.parse().unwrap()),
            ecn: 2,
        };
        send_gso(a.as_raw_fd(), &sent).unwrap();
        let mut batch = Batch::new(4, 65_536).unwrap();
        let seen = receive_all(&b, &mut batch, Control::Wanted).concat();
        assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [100, 50]);
    }
}

#[test]
fn a_socket_that_does_not_fragment_refuses_what_is_too_long() {
    let a = UdpSocket::bind("0.0.0.0:0").unwrap();
    set_unfragmented(a.as_raw_fd()).unwrap();
    let sent = GsoBatch {
        bytes: &vec![0; 65_507],
        segment_len: None,
        to: "127.0.0.1:9".parse().unwrap(),
        source: None,
        ecn: 0,
    };
    // 65,507 bytes and 28 of headers are the most that any packet has; one more is refused.
    send_gso(a.as_raw_fd(), &sent).unwrap();
    let longer = GsoBatch { bytes: &vec![0; 65_508], ..sent };
    let refused = send_gso(a.as_raw_fd(), &longer).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::EMSGSIZE));
    assert!(!refused.is_of_segmentation());
}

/// Sends and receives with one [`Outgoing`] and one [`Batch`], first with all calls, then without
/// sendmmsg(2) and recvmmsg(2).
fn without_calls_for_many(errno: i32) {
    let (a, b) = pair();
    let (source, target) = (to(&a), to(&b));
    let mut outgoing = Outgoing::default();
    let mut batch = Batch::new(8, 100).unwrap();
    let denied = [libc::SYS_recvmmsg, libc::SYS_sendmmsg];
    let mut exchange = move || {
        let datagrams: Vec<Vec<u8>> = (1..6u8).map(|n| vec![n; usize::from(n)]).collect();
        let mut sent = 0;
        while sent < datagrams.len() {
            let rest = datagrams[sent..].iter();
            let rest = rest.map(|bytes| (&**bytes, Some(&target)));
            sent += outgoing.send(a.as_raw_fd(), rest, false).unwrap();
        }
        let mut seen = Vec::new();
        let end = loop {
            match batch.receive(b.as_raw_fd(), Control::Unwanted, 8) {
                Ok(_) => seen.extend(batch.received().map(|message| {
                    assert_eq!(message.source, source);
                    message.payload.to_vec()
                })),
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(seen, datagrams);
        // An error after datagrams comes after them.
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nobody = SockAddr::from(nobody);
        let long = vec![0; 70_000];
        let mixed = [(&b"x"[..], Some(&nobody)), (&*long, Some(&nobody))];
        assert_eq!(outgoing.send(a.as_raw_fd(), mixed.into_iter(), false).unwrap(), 1);
        let refused = outgoing.send(a.as_raw_fd(), mixed[1..].iter().copied(), false);
        let errno = refused.unwrap_err().error.raw_os_error();
        assert_eq!(errno, Some(libc::EMSGSIZE));
    };
    exchange();
    with_calls_denied(&denied, errno, exchange);
}

#[test]
fn without_the_calls_for_many_messages_each_goes_by_itself() {
    without_calls_for_many(libc::ENOSYS);
    without_calls_for_many(libc::EPERM);
}

#[test]
fn answers_of_closed_ports_name_where_the_datagram_went() {
    for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let Ok(socket) = UdpSocket::bind(address) else {
            continue;
        };
        socket.set_nonblocking(true).unwrap();
        let fd = socket.as_raw_fd();
        set_receive_ecn(fd, true).unwrap();
        set_receive_local_ip(fd, true).unwrap();
        set_receive_errors(fd, true).unwrap();
        let loopback = if address == "[::]:0" { "[::ffff:127.0.0.1]:0" } else { address };
        let mut closed: std::net::SocketAddr = loopback.parse().unwrap();
        closed.set_port(1);
        socket.send_to(b"x", closed).unwrap();
        let answer = next_error(fd).unwrap();
        assert_eq!((answer.to.ip(), answer.to.port()), (closed.ip(), 1));
        assert_eq!(answer.errno, libc::ECONNREFUSED);
        let kind = next_error(fd).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::WouldBlock);
        socket.send_to(b"x", closed).unwrap();
        // Disabling drops the queue.
        set_receive_errors(fd, false).unwrap();
        assert_eq!(next_error(fd).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
