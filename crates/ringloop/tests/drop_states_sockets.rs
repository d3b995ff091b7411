//! As `drop_states.rs`, for multishot polls, peeks, datagrams, zero-copy sends and waits for children: forget, cancel and
//! drop at every state, on both drivers.
//! After each: nothing is in flight, no descriptor is leaked, foreign memory was released once and
//! not touched after, and the next operation on the same descriptor gets its own bytes.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::embed::op::{
    Kind as _, Peek, PollMulti, Request, Send, SendDatagram, SendMsg, SendMsgZc, SendZc, WaitChild,
};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::{process, socket};
use ringloop_testing::engine::{
    Bed, Foreign, full_unix_datagrams, open_descriptors, tcp_pair, write_all,
};
use ringloop_testing::states::{Case, End, State, at_every_state, give_up, reach};
use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::process::Child;

/// Everything that an operation may need, and the foreign memory it is given.
struct World {
    ours: TcpStream,
    peer: TcpStream,
    /// A socket whose receiver's queue is full, and the receiver.
    datagrams: (UnixDatagram, UnixDatagram),
    child: Child,
    pidfd: OwnedFd,
    foreign: Foreign,
}

impl World {
    fn new() -> Self {
        let (ours, peer) = tcp_pair();
        let child = std::process::Command::new("sleep").arg("1000").spawn();
        let child = child.unwrap();
        let pidfd = process::pidfd_open(child.id()).unwrap();
        Self {
            ours,
            peer,
            datagrams: full_unix_datagrams(),
            child,
            pidfd,
            foreign: Foreign::holding(&[b'.'; 4096]),
        }
    }

    fn fd(&self) -> RawFd {
        self.ours.as_raw_fd()
    }

    /// Fills our side of the connection until a send would block.
    fn fill_socket(&self) {
        let block = [b'f'; 8192];
        while socket::send(self.fd(), &block, 0).is_ok() {}
    }

    /// Everything that the peer can read now; none of it may come from released memory.
    fn drain_peer(&mut self) {
        self.peer.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = self.peer.read(&mut bytes) {
            let fine = bytes[..count].iter().all(|byte| b"f.".contains(byte));
            assert!(fine, "released memory was sent");
        }
        self.peer.set_nonblocking(false).unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn poll_multi(world: &mut World) -> Request {
    Request::PollMulti(PollMulti { fd: world.fd(), interest: Interest::READ })
}

fn peek(world: &mut World) -> Request {
    let buf = world.foreign.recv_buf();
    let fd = world.fd();
    Peek { fd, buf }.into_request()
}

fn send_zc(world: &mut World) -> Request {
    world.fill_socket();
    let buf = world.foreign.send_buf();
    let fd = world.fd();
    Request::SendZc(SendZc::new(Send { fd, buf }))
}

fn send_msg_zc(world: &mut World) -> Request {
    world.fill_socket();
    let bufs = vec![vec![b'.'; 10].into(), world.foreign.send_buf()];
    Request::SendMsgZc(SendMsgZc::new(SendMsg::new(world.fd(), bufs)))
}

fn send_datagram(world: &mut World) -> Request {
    let fd = world.datagrams.0.as_raw_fd();
    Request::SendDatagram(SendDatagram::new(fd, world.foreign.send_buf()))
}

fn make_room_for_a_datagram(world: &mut World) {
    let mut bytes = [0; 16];
    assert_eq!(world.datagrams.1.recv(&mut bytes).unwrap(), 4);
}

fn wait_child(world: &mut World) -> Request {
    let pidfd = world.pidfd.as_raw_fd();
    Request::WaitChild(WaitChild { pidfd })
}

fn write_to_ours(world: &mut World) {
    write_all(&mut world.peer, b"lost!");
}

fn kill_child(world: &mut World) {
    world.child.kill().unwrap();
}

static CASES: [Case<World>; 6] = [
    Case::new("poll multi", poll_multi, write_to_ours),
    Case::new("peek", peek, write_to_ours).with_foreign(),
    Case::new("send zc", send_zc, World::drain_peer).with_foreign(),
    Case::new("sendmsg zc", send_msg_zc, World::drain_peer).with_foreign(),
    Case::new("send datagram", send_datagram, make_room_for_a_datagram).with_foreign(),
    Case::new("wait child", wait_child, kill_child),
];

fn run(choice: Choice, case: &Case<World>, state: State, end: End) {
    let before = open_descriptors();
    let mut world = World::new();
    let mut bed = Bed::new(choice);
    let (key, token) = reach(&mut bed, &mut world, case, state);
    drop(bed.take(token));
    let Some(mut bed) = give_up(bed, key, end) else {
        (case.trigger)(&mut world);
        case.assert_released(&world.foreign);
        drop(world);
        assert_eq!(open_descriptors(), before);
        return;
    };
    // Acknowledgements of a full connection come once its peer reads.
    world.drain_peer();
    bed.drain();
    let events = bed.take_all();
    if end != End::Cancel && state != State::Taken {
        assert!(events.is_empty(), "an event after forget: {events:?}");
    }
    drop(events);
    if case.name != "peek" && case.name != "poll multi" {
        (case.trigger)(&mut world);
    }
    bed.settle();
    assert!(bed.take_all().is_empty(), "an event of what is over");
    case.assert_released(&world.foreign);
    write_all(&mut world.peer, b"mine");
    let mut received = Vec::new();
    while !received.ends_with(b"mine") {
        let (count, bytes) = bed.recv(world.fd(), 64);
        assert!(count > 0);
        received.extend(bytes);
    }
    bed.release(&world.ours);
    bed.release(&world.datagrams.0);
    bed.release(&world.pidfd);
    drop((bed, world));
    assert_eq!(open_descriptors(), before, "descriptors at the end");
}

#[test]
fn cancel_at_every_state_ends_the_operation() {
    at_every_state(&CASES, End::Cancel, run);
}

#[test]
fn forget_at_every_state_ends_the_operation_silently() {
    at_every_state(&CASES, End::Forget, run);
}

#[test]
fn forget_after_cancel_ends_the_operation_silently() {
    at_every_state(&CASES, End::CancelThenForget, run);
}

#[test]
fn drop_of_the_driver_at_every_state_gives_everything_back() {
    at_every_state(&CASES, End::DropDriver, run);
}
