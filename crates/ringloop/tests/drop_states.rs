//! Forget, cancel and drop at every state of every operation, on both drivers.
//!
//! After each: nothing is in flight, no descriptor is leaked, a foreign buffer was released once
//! and not touched after, and the next operation on the same descriptor gets its own bytes.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::limits;
use ringloop::embed::op::{
    Accept, Cancel, Close, Connect, Nop, Poll, PollBorrowed, PollMode, Read, Recv, RecvMsg,
    RecvMsgMulti, RecvMulti, Request, Send, SendMsg, Timeout, Write,
};
use ringloop::embed::sys::address::SockAddr;
use ringloop::embed::sys::datagram::Control;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::{file, socket};
use ringloop::embed::{Kind, Sink, Token};
use ringloop_testing::drivers;
use ringloop_testing::engine;
use ringloop_testing::engine::{
    Bed, Foreign, alone, connect_to, is_closed, on_both, open_descriptors, tcp_pair, write_all,
};
use ringloop_testing::states::{Case, End, State, at_every_state, give_up, reach};
use std::io::Read as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// Everything that an operation may need, and the foreign memory it is given.
struct World {
    ours: TcpStream,
    peer: TcpStream,
    listener: TcpListener,
    clients: Vec<TcpStream>,
    full_listener: TcpListener,
    connecting: OwnedFd,
    pipe: (OwnedFd, OwnedFd),
    udp: (UdpSocket, UdpSocket),
    spare: Option<OwnedFd>,
    foreign: Foreign,
}

impl World {
    fn new() -> Self {
        let (ours, peer) = tcp_pair();
        let full_listener = TcpListener::bind("127.0.0.1:0").unwrap();
        socket::listen(full_listener.as_raw_fd(), 0).unwrap();
        // A backlog of 0 holds one connection; the next one's first packet is not answered.
        let clients = vec![connect_to(&full_listener)];
        let udp = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (ours_udp, peer_udp) = (udp(), udp());
        ours_udp.set_nonblocking(true).unwrap();
        let (spare, _) = file::pipe().unwrap();
        Self {
            ours,
            peer,
            listener: engine::listener(),
            clients,
            full_listener,
            connecting: socket::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap(),
            pipe: file::pipe().unwrap(),
            udp: (ours_udp, peer_udp),
            spare: Some(spare),
            foreign: Foreign::new(4096),
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

    fn fill_pipe(&self) {
        let block = [b'f'; 8192];
        while file::write(self.pipe.1.as_raw_fd(), &block, None).is_ok() {}
    }

    /// Everything that the peer can read now; none of it may come from released memory.
    fn drain_peer(&mut self) {
        self.peer.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 20];
        while let Ok(1..) = self.peer.read(&mut bytes).inspect(|count| {
            let sent = &bytes[..*count];
            assert!(sent.iter().all(|b| b"f.".contains(b)), "released memory");
        }) {}
        self.peer.set_nonblocking(false).unwrap();
    }
}

fn write_to_ours(world: &mut World) {
    write_all(&mut world.peer, b"lost!");
}

fn connect_a_client(world: &mut World) {
    world.clients.push(connect_to(&world.listener));
}

fn nothing(_: &mut World) {}

fn poll(world: &World, level: bool) -> Request {
    Request::Poll(Poll { fd: world.fd(), interest: Interest::READ, level })
}

fn poll_borrowed(world: &World, level: bool) -> Request {
    let mode = if level { PollMode::Level } else { PollMode::Edge };
    let poll = PollBorrowed { fd: world.listener.as_raw_fd(), interest: Interest::READ, mode };
    Request::PollBorrowed(poll)
}

fn accept(world: &World, multi: bool) -> Request {
    let fd = world.listener.as_raw_fd();
    Request::Accept(Accept { fd, multi })
}

fn recv(world: &mut World) -> Request {
    let buf = world.foreign.recv_buf();
    Request::Recv(Recv { fd: world.fd(), buf })
}

fn connect(world: &mut World) -> Request {
    let addr = SockAddr::from(world.full_listener.local_addr().unwrap());
    Request::Connect(Connect::new(world.connecting.as_raw_fd(), addr))
}

fn send(world: &mut World) -> Request {
    world.fill_socket();
    let buf = world.foreign.send_buf();
    Request::Send(Send { fd: world.fd(), buf })
}

fn send_msg(world: &mut World) -> Request {
    world.fill_socket();
    let bufs = vec![SendBuf::from(vec![b'.'; 10]), world.foreign.send_buf()];
    Request::SendMsg(SendMsg::new(world.fd(), bufs))
}

fn recv_msg(world: &mut World) -> Request {
    Request::RecvMsg(RecvMsg::new(world.udp.0.as_raw_fd(), world.foreign.recv_buf()))
}

fn recv_msg_multi(world: &mut World) -> Request {
    let fd = world.udp.0.as_raw_fd();
    Request::RecvMsgMulti(RecvMsgMulti::new(fd, Control::Wanted))
}

fn send_datagram(world: &mut World) {
    let to = world.udp.0.local_addr().unwrap();
    world.udp.1.send_to(b"lost!", to).unwrap();
}

fn read(world: &mut World) -> Request {
    Request::Read(Read {
        fd: world.pipe.0.as_raw_fd(),
        buf: world.foreign.recv_buf(),
        offset: None,
    })
}

fn write_to_pipe(world: &mut World) {
    file::write(world.pipe.1.as_raw_fd(), b"lost!", None).unwrap();
}

fn write(world: &mut World) -> Request {
    world.fill_pipe();
    Request::Write(Write {
        fd: world.pipe.1.as_raw_fd(),
        buf: world.foreign.send_buf(),
        offset: None,
    })
}

fn drain_pipe(world: &mut World) {
    let mut block = vec![std::mem::MaybeUninit::uninit(); 65536];
    while file::read(world.pipe.0.as_raw_fd(), &mut block, None).is_ok() {}
}

fn close(world: &mut World) -> Request {
    let fd = world.spare.take().unwrap().into_raw_fd();
    Request::Close(Close { fd })
}

static CASES: [Case<World>; 19] = [
    Case::new("nop", |_| Request::Nop(Nop), nothing),
    Case::new("poll once", |world| poll(world, false), write_to_ours),
    Case::new("poll level", |world| poll(world, true), write_to_ours),
    Case::new("poll borrowed", |world| poll_borrowed(world, false), connect_a_client),
    Case::new("poll borrowed level", |world| poll_borrowed(world, true), connect_a_client),
    Case::new("accept", |world| accept(world, false), connect_a_client),
    Case::new("accept multi", |world| accept(world, true), connect_a_client),
    Case::new("connect", connect, nothing),
    Case::new("recv", recv, write_to_ours).with_foreign(),
    Case::new("recv multi", |world| Request::RecvMulti(RecvMulti::new(world.fd())), write_to_ours),
    Case::new("recvmsg", recv_msg, send_datagram).with_foreign(),
    Case::new("recvmsg multi", recv_msg_multi, send_datagram),
    Case::new("send", send, World::drain_peer).with_foreign(),
    Case::new("sendmsg", send_msg, World::drain_peer).with_foreign(),
    Case::new("read", read, write_to_pipe).with_foreign(),
    Case::new("write", write, drain_pipe).with_foreign(),
    Case::new("timeout", |_| Request::Timeout(Timeout::after(HOUR)), nothing),
    Case::new("timeout that is due", |_| Request::Timeout(Timeout::after(Duration::ZERO)), nothing),
    Case::new("close", close, nothing),
];

/// Buffers of taken completions are the embedder's to recycle.
fn give_back_taken(bed: &mut Bed, case: &Case<World>, token: Token) {
    if let Some(mut completion) = bed.take(token) {
        bed.take_bytes(&mut completion);
        if completion.result >= 0 && matches!(case.name, "accept" | "accept multi") {
            file::close(completion.result).unwrap();
        }
    }
}

/// Buffers of completions that came during the cancel are the embedder's to recycle.
fn give_back(bed: &mut Bed, case: &Case<World>) {
    for mut event in bed.take_all() {
        bed.take_bytes(&mut event.completion);
        if event.completion.result >= 0 && matches!(case.name, "accept" | "accept multi") {
            file::close(event.completion.result).unwrap();
        }
        if case.name == "close"
            && event.completion.result == -libc::ECANCELED
            && let Some(Request::Close(close)) = event.completion.request
        {
            file::close(close.fd).unwrap();
        }
    }
}

fn run(choice: Choice, case: &Case<World>, state: State, end: End) {
    let before = open_descriptors();
    let mut world = World::new();
    let mut bed = Bed::new(choice);
    let settled = open_descriptors() - world.clients.len();
    let (key, token) = reach(&mut bed, &mut world, case, state);
    give_back_taken(&mut bed, case, token);
    let Some(mut bed) = give_up(bed, key, end) else {
        (case.trigger)(&mut world);
        case.assert_released(&world.foreign);
        drop(world);
        assert_eq!(open_descriptors(), before);
        return;
    };
    bed.drain();
    if end != End::Cancel {
        assert!(state == State::Taken || bed.take_all().is_empty(), "an event after forget");
    }
    give_back(&mut bed, case);
    let closed = usize::from(case.name == "close");
    assert_eq!(open_descriptors(), settled + world.clients.len() - closed, "descriptors");
    // Late data has no receiver.
    if case.name != "close" {
        (case.trigger)(&mut world);
    }
    bed.settle();
    assert!(bed.take_all().is_empty(), "an event of what is over");
    case.assert_released(&world.foreign);
    next_operation_gets_its_own_bytes(&mut bed, &mut world);
    drop((bed, world));
    assert_eq!(open_descriptors(), before, "descriptors at the end");
}

fn next_operation_gets_its_own_bytes(bed: &mut Bed, world: &mut World) {
    write_all(&mut world.peer, b"mine");
    let mut received = Vec::new();
    while !received.ends_with(b"mine") {
        let (count, bytes) = bed.recv(world.fd(), 64);
        assert!(count > 0);
        received.extend(bytes);
    }
    let rest = received.strip_suffix(b"mine").unwrap();
    assert!(rest.chunks(5).all(|chunk| chunk == b"lost!"), "{received:?}");
    bed.release(&world.ours);
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

/// A bed moved to another thread, with what its operations need.
struct Moved<T>(T);

// SAFETY: each test moves its bed as a whole; no reference to it stays behind.
unsafe impl<T> std::marker::Send for Moved<T> {}

/// The driver leaves its thread with an operation in `state`, which completes in another one.
fn move_on(choice: Choice, case: &'static Case<World>, state: State, _: End) {
    let mut world = World::new();
    let mut bed = Bed::new(choice);
    let (_, token) = reach(&mut bed, &mut world, case, state);
    bed.engine.driver_mut().unbind();
    let moved = Moved((bed, world));
    let elsewhere = move || {
        let Moved((mut bed, mut world)) = { moved };
        if let Err(error) = bed.engine.bind() {
            // What cannot begin again stays with its thread.
            let stays = ["connect", "timeout", "timeout that is due", "close"];
            assert!(bed.kind() == Kind::Uring && stays.contains(&case.name), "{error}");
            assert!(error.to_string().contains("or use the epoll driver"), "{error}");
            return Moved((bed, world));
        }
        let never_ends = matches!(case.name, "connect" | "timeout");
        if !never_ends && state != State::Taken {
            if matches!(state, State::Queued | State::InFlight) {
                (case.trigger)(&mut world);
            }
            let mut completion = bed.expect(token);
            assert!(completion.result >= 0, "{}", completion.result);
            let bytes = bed.take_bytes(&mut completion);
            assert!(bytes.is_empty() || bytes.ends_with(b"lost!"), "{bytes:?}");
            if matches!(case.name, "accept" | "accept multi") {
                file::close(completion.result).unwrap();
            }
        }
        bed.engine.driver_mut().unbind();
        Moved((bed, world))
    };
    let Moved((bed, world)) = std::thread::spawn(elsewhere).join().unwrap();
    // In the first thread again.
    drop(bed);
    case.assert_released(&world.foreign);
}

#[test]
fn operation_in_every_state_continues_in_another_thread() {
    at_every_state(&CASES, End::Cancel, move_on);
}

#[test]
fn drop_of_a_driver_that_was_never_bound_gives_everything_back() {
    let _alone = alone();
    for choice in drivers() {
        let before = open_descriptors();
        for forget in [false, true] {
            let mut bed = Bed::unbound(choice);
            let mut worlds: Vec<_> = CASES.iter().map(|_| World::new()).collect();
            for (case, world) in CASES.iter().zip(&mut worlds) {
                let request = (case.request)(world);
                let (key, _) = bed.submit(request);
                if forget {
                    bed.forget(key);
                }
            }
            drop(bed);
            for (case, world) in CASES.iter().zip(&worlds) {
                case.assert_released(&world.foreign);
            }
            drop(worlds);
            assert_eq!(open_descriptors(), before);
        }
    }
}

#[test]
fn wait_of_a_ring_that_was_never_bound_is_an_error_and_loses_nothing() {
    let _alone = alone();
    for choice in drivers() {
        let mut bed = Bed::unbound(choice);
        if bed.kind() != Kind::Uring {
            continue;
        }
        let (_, token) = bed.submit(Request::Nop(Nop));
        let error = bed.engine.park(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADFD));
        bed.engine.bind().unwrap();
        assert_eq!(bed.expect(token).result, 0);
    }
}

#[test]
fn drop_with_everything_in_flight_at_once_gives_everything_back() {
    let _alone = alone();
    let limit = Duration::from_millis(limits::DRAIN_TIMEOUT_MS);
    for choice in drivers() {
        // A busy machine may delay the test; a driver that waits for an operation that never ends
        // does so every time.
        let is_prompt = (0..5).any(|_| drop_with_everything_in_flight(choice) < limit);
        assert!(is_prompt, "{choice:?} waited");
    }
}

/// Time to drop the driver.
fn drop_with_everything_in_flight(choice: Choice) -> Duration {
    let before = open_descriptors();
    let mut bed = Bed::new(choice);
    let mut worlds: Vec<_> = CASES.iter().map(|_| World::new()).collect();
    for (case, world) in CASES.iter().zip(&mut worlds) {
        let request = (case.request)(world);
        bed.submit(request);
    }
    // More than the submission queue holds, so that some are in the backlog.
    for _ in 0..3 * limits::RING_ENTRIES {
        bed.submit(Request::Timeout(Timeout::after(HOUR)));
    }
    bed.turn(Duration::ZERO);
    for (case, world) in CASES.iter().zip(&mut worlds) {
        (case.trigger)(world);
    }
    let started = Instant::now();
    give_back(&mut bed, &CASES[0]);
    drop(bed);
    let took = started.elapsed();
    for (case, world) in CASES.iter().zip(&worlds) {
        if case.uses_foreign {
            assert_eq!(world.foreign.releases(), 1, "{}", case.name);
        }
    }
    drop(worlds);
    assert_eq!(open_descriptors(), before);
    took
}

/// An entry on the submission queue names a number. Once it is cancelled and its descriptor closed,
/// it must not reach the next descriptor of that number.
#[test]
fn queued_receive_that_was_given_up_takes_no_bytes_from_the_next_descriptor() {
    on_both(|bed| {
        for cancel in [false, true] {
            let foreign = Foreign::new(64);
            let (ours, _peer) = tcp_pair();
            let fd = ours.as_raw_fd();
            let buf = foreign.recv_buf();
            let (key, _) = bed.submit(Request::Recv(Recv { fd, buf }));
            if cancel {
                bed.cancel(key);
            } else {
                bed.forget(key);
            }
            bed.release(&ours);
            let (next, mut next_peer) = tcp_pair();
            // SAFETY: no pointer is passed; `fd` is closed by this, as `ours` gives it up below.
            let moved = unsafe { libc::dup2(next.as_raw_fd(), fd) };
            assert_eq!(moved, fd);
            write_all(&mut next_peer, b"precious");
            bed.drain();
            assert_eq!(bed.recv(fd, 64), (8, b"precious".to_vec()));
            bed.take_all();
            foreign.assert_released_untouched();
            bed.release(&ours);
        }
    });
}

/// Counts wakes.
#[derive(Debug, Default)]
struct Counter(AtomicU32);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn connections_that_a_future_did_not_take_are_closed_when_it_is_forgotten() {
    on_both(|bed| {
        for end_first in [false, true] {
            let listener = engine::listener();
            let before = open_descriptors();
            let counter = Arc::new(Counter::default());
            let accept = Request::Accept(Accept { fd: listener.as_raw_fd(), multi: true });
            let sink = Sink::Waker(Arc::clone(&counter).into());
            let key = bed.engine.driver_mut().submit(accept, sink);
            let mut clients: Vec<_> = (0..5).map(|_| connect_to(&listener)).collect();
            while counter.0.load(Ordering::Relaxed) < 5 {
                bed.turn(Duration::from_millis(10));
            }
            if end_first {
                bed.cancel(key);
                while counter.0.load(Ordering::Relaxed) < 6 {
                    bed.turn(Duration::from_millis(10));
                }
            }
            assert_eq!(open_descriptors(), before + 10);
            bed.forget(key);
            bed.drain();
            assert_eq!(open_descriptors(), before + 5);
            assert!(clients.iter_mut().all(is_closed));
            bed.release(&listener);
        }
    });
}

#[test]
fn stale_keys_and_tokens_do_nothing() {
    on_both(|bed| {
        let (stale, _) = bed.submit(Request::Nop(Nop));
        bed.drain();
        bed.take_all();
        // The slot is reused.
        let (ours, mut peer) = tcp_pair();
        let buf = RecvBuf::with_capacity(16);
        let fd = ours.as_raw_fd();
        let (_, token) = bed.submit(Request::Recv(Recv { fd, buf }));
        bed.cancel(stale);
        bed.forget(stale);
        let target = stale;
        assert_eq!(bed.run(Request::Cancel(Cancel { target })).result, -libc::ENOENT);
        bed.expect_none(token);
        bed.expect_none(Token(99));
        write_all(&mut peer, b"x");
        assert_eq!(bed.expect(token).result, 1);
    });
}

#[test]
fn cancelled_timeouts_leave_nothing_behind() {
    on_both(|bed| {
        for _ in 0..20 {
            let keys: Vec<_> =
                (0..1000).map(|_| bed.submit(Request::Timeout(Timeout::after(HOUR))).0).collect();
            for key in keys {
                bed.forget(key);
            }
            bed.drain();
        }
        // A live one is kept.
        let (_, token) = bed.submit(Request::Timeout(Timeout::after(Duration::from_millis(5))));
        assert_eq!(bed.expect(token).result, 0);
    });
}
