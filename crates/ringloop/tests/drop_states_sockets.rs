//! As `drop_states.rs`, for multishot polls, peeks, zero-copy sends and waits for children: forget, cancel and
//! drop at every state, on both drivers.
//!
//! After each: nothing is in flight, no descriptor leaked, foreign memory was released once and not touched
//! after, and the next operation on the same descriptor gets its own bytes.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::driver::{Choice, Key, Token};
use ringloop::op::{
    Kind as _, Peek, PollMulti, Request, Send, SendMsg, SendMsgZc, SendZc, WaitChild,
};
use ringloop::sys::interest::Interest;
use ringloop::sys::{process, socket};
use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::Child;
use std::time::Duration;
use support::{Bed, Foreign, alone, drivers, open_descriptors, tcp_pair, write_all};

/// Everything an operation may want to talk to, and the foreign memory it is given.
struct World {
    ours: TcpStream,
    peer: TcpStream,
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
            child,
            pidfd,
            foreign: Foreign::holding(&[b'.'; 4096]),
        }
    }

    fn fd(&self) -> RawFd {
        self.ours.as_raw_fd()
    }

    /// Fill our side of the connection until a send would block.
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

/// One operation: how it is asked for so that it has to wait, and what makes it complete.
struct Case {
    name: &'static str,
    request: fn(&mut World) -> Request,
    trigger: fn(&mut World),
    uses_foreign: bool,
}

fn poll_multi(world: &mut World) -> Request {
    Request::PollMulti(PollMulti {
        fd: world.fd(),
        interest: Interest::READ,
    })
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

const CASES: [Case; 5] = [
    Case {
        name: "poll multi",
        request: poll_multi,
        trigger: write_to_ours,
        uses_foreign: false,
    },
    Case {
        name: "peek",
        request: peek,
        trigger: write_to_ours,
        uses_foreign: true,
    },
    Case {
        name: "send zc",
        request: send_zc,
        trigger: World::drain_peer,
        uses_foreign: true,
    },
    Case {
        name: "sendmsg zc",
        request: send_msg_zc,
        trigger: World::drain_peer,
        uses_foreign: true,
    },
    Case {
        name: "wait child",
        request: wait_child,
        trigger: kill_child,
        uses_foreign: false,
    },
];

/// How far an operation got before it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    QueuedReady,
    InFlight,
    Completed,
    Taken,
}

/// How it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancel,
    Forget,
    CancelThenForget,
    DropDriver,
}

/// Bring the operation of `case` to `state`.
fn reach(bed: &mut Bed, world: &mut World, case: &Case, state: State) -> (Key, Token) {
    let request = (case.request)(world);
    if state == State::QueuedReady {
        (case.trigger)(world);
    }
    let (key, token) = bed.submit(request);
    if matches!(state, State::Queued | State::QueuedReady) {
        return (key, token);
    }
    for _ in 0..2 {
        bed.engine.park(Some(Duration::ZERO)).unwrap();
    }
    if state == State::InFlight {
        return (key, token);
    }
    (case.trigger)(world);
    bed.engine.park(Some(Duration::from_millis(2))).unwrap();
    if state == State::Taken {
        for _ in 0..3 {
            bed.turn(Duration::from_millis(1));
        }
        drop(bed.take(token));
    }
    (key, token)
}

fn run(choice: Choice, case: &Case, state: State, end: End) {
    let before = open_descriptors();
    let mut world = World::new();
    let mut bed = Bed::new(choice);
    let (key, _) = reach(&mut bed, &mut world, case, state);
    match end {
        End::Cancel => bed.cancel(key),
        End::Forget => bed.forget(key),
        End::CancelThenForget => {
            bed.cancel(key);
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            bed.forget(key);
        }
        End::DropDriver => {
            drop(bed);
            (case.trigger)(&mut world);
            if case.uses_foreign {
                world.foreign.assert_released_untouched();
            }
            drop(world);
            assert_eq!(open_descriptors(), before);
            return;
        }
    }
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
    if case.uses_foreign {
        world.foreign.assert_released_untouched();
    }
    write_all(&mut world.peer, b"mine");
    let mut received = Vec::new();
    while !received.ends_with(b"mine") {
        let (count, bytes) = bed.recv(world.fd(), 64);
        assert!(count > 0);
        received.extend(bytes);
    }
    bed.release(&world.ours);
    bed.release(&world.pidfd);
    drop((bed, world));
    assert_eq!(open_descriptors(), before, "descriptors at the end");
}

fn at_every_state(end: End) {
    use State::{Completed, InFlight, Queued, QueuedReady, Taken};
    let _alone = alone();
    for choice in drivers() {
        for case in &CASES {
            for state in [Queued, QueuedReady, InFlight, Completed, Taken] {
                let told = format!("{choice:?}: {} {state:?} {end:?}", case.name);
                let outcome = std::panic::catch_unwind(|| run(choice, case, state, end));
                assert!(outcome.is_ok(), "{told}");
            }
        }
    }
}

#[test]
fn cancel_at_every_state_ends_the_operation() {
    at_every_state(End::Cancel);
}

#[test]
fn forget_at_every_state_ends_the_operation_silently() {
    at_every_state(End::Forget);
}

#[test]
fn forget_after_cancel_ends_the_operation_silently() {
    at_every_state(End::CancelThenForget);
}

#[test]
fn drop_of_the_driver_at_every_state_gives_everything_back() {
    at_every_state(End::DropDriver);
}
