//! Shared by the engine's tests: an engine driven like an embedder's, peers, and counters.

use crate::{PATIENCE, drivers};

pub use crate::sys::*;
use ringloop::Choice;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::Engine;
use ringloop::embed::limits;
use ringloop::embed::op::{Recv, Request};
use ringloop::embed::sys::fd::{AsRawFd, RawFd};
use ringloop::embed::sys::libc;
use ringloop::embed::{Completion, Event, Key, Kind, Sink, Token};
use ringloop::{Options, Runtime};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs a test on every driver, alone, with an engine bound to this thread.
pub fn on_both(test: impl Fn(&mut Bed)) {
    let _alone = alone();
    for choice in drivers() {
        let mut bed = Bed::new(choice);
        test(&mut bed);
    }
}

/// Runs a test on every driver, alone, in its own runtime; it may leave nothing open.
pub fn in_runtimes(test: impl Fn(&Runtime)) {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let options = Options { driver, ..Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        test(&runtime);
        drop(runtime);
        expect_descriptors(before);
    }
}

/// Runs a test on every driver, alone, in its own directory; it may leave nothing open.
pub fn in_directories<F: Future<Output = ()>>(name: &str, test: impl Fn(PathBuf) -> F) {
    in_runtimes(|runtime| {
        let dir = std::env::temp_dir().join(format!("ringloop-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        runtime.block_on(test(dir.clone())).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    });
}

/// One test at a time: descriptor numbers and counts are process-global.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no more than `count` descriptors are open: a pool thread may hold its loop until its
/// call has ended, even that of an earlier test.
#[track_caller]
pub fn expect_descriptors(count: usize) {
    let begun = Instant::now();
    loop {
        let open = open_descriptors();
        if open <= count {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{open} descriptors are open, {count} at most were to be: {}",
            described_descriptors()
        );
        std::thread::yield_now();
    }
}

/// Where the first memory of a pool is, by the first bytes that came in it: they are in its first
/// buffer. No pool's is longer than that of streams.
pub fn first_memory(first: &[u8]) -> Range<usize> {
    let start = first.as_ptr().addr();
    start..start + usize::from(limits::POOL_BUFFERS) * limits::POOL_BUFFER_BYTES as usize
}

/// `mem::forget`, but reachable from a static, so that leak checkers ignore it.
pub fn leak<T>(value: T) {
    static LEAKED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let address = std::ptr::from_mut(Box::leak(Box::new(value))) as usize;
    LEAKED.lock().unwrap().push(address);
}

/// An engine driven like an embedder's: by tokens.
#[derive(Debug)]
pub struct Bed {
    pub engine: Engine,
    arrived: VecDeque<Event>,
    next_token: u64,
}

impl Bed {
    pub fn new(choice: Choice) -> Self {
        let mut bed = Self::unbound(choice);
        bed.engine.bind().unwrap();
        bed
    }

    pub fn unbound(driver: Choice) -> Self {
        Self::with(Options { driver, ..Options::default() })
    }

    pub fn with(options: Options) -> Self {
        Self { engine: Engine::new(options).unwrap(), arrived: VecDeque::new(), next_token: 0 }
    }

    pub fn kind(&self) -> Kind {
        self.engine.kind()
    }

    pub fn submit(&mut self, request: Request) -> (Key, Token) {
        let token = Token(self.next_token);
        self.next_token += 1;
        let key = self.engine.driver_mut().submit(request, Sink::Handler(token));
        (key, token)
    }

    /// Submits, and takes the one completion.
    pub fn run(&mut self, request: Request) -> Completion {
        let (_, token) = self.submit(request);
        let completion = self.expect(token);
        assert!(!completion.more, "{completion:?}");
        completion
    }

    /// One turn: waits up to `timeout`, then collects all events.
    pub fn turn(&mut self, timeout: Duration) {
        self.engine.park(Some(timeout)).unwrap();
        while let Some(event) = self.engine.next_event() {
            self.arrived.push_back(event);
        }
    }

    /// Turns without waiting: submits what is queued, and collects what has arrived.
    pub fn settle(&mut self) {
        for _ in 0..4 {
            self.turn(Duration::ZERO);
        }
    }

    /// The next completion for `token`.
    pub fn expect(&mut self, token: Token) -> Completion {
        let started = Instant::now();
        loop {
            if let Some(completion) = self.take(token) {
                return completion;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "no completion for {token:?}, {} in flight, others: {:?}",
                self.in_flight(),
                self.arrived
            );
            self.turn(Duration::from_millis(100));
        }
    }

    /// A completion for `token` that has arrived already.
    pub fn take(&mut self, token: Token) -> Option<Completion> {
        let at = self.arrived.iter().position(|event| event.token == token)?;
        self.arrived.remove(at).map(|event| event.completion)
    }

    /// Everything that has arrived.
    pub fn take_all(&mut self) -> Vec<Event> {
        self.arrived.drain(..).collect()
    }

    /// Nothing comes for `token`, however often the kernel is polled.
    pub fn expect_none(&mut self, token: Token) {
        for _ in 0..4 {
            self.turn(Duration::from_millis(1));
        }
        let completion = self.take(token);
        assert!(completion.is_none(), "{completion:?}");
    }

    /// When idle, waits last as long as their timeout. A few may end early: a loop may check a
    /// descriptor once more, and the kernel interrupts a wait to tear an earlier ring down.
    pub fn assert_sleeps(&mut self) {
        let early = (0..20).filter(|_| {
            let started = Instant::now();
            self.turn(Duration::from_millis(2));
            started.elapsed() < Duration::from_millis(2)
        });
        let early_count = early.count();
        assert!(early_count <= 5, "{early_count} of 20 waits ended early");
    }

    pub fn cancel(&mut self, key: Key) {
        self.engine.driver_mut().cancel(key);
    }

    pub fn forget(&mut self, key: Key) {
        self.engine.driver_mut().forget(key);
    }

    pub fn in_flight(&mut self) -> usize {
        self.engine.driver_mut().in_flight()
    }

    /// Runs turns until nothing is in flight.
    pub fn drain(&mut self) {
        let started = Instant::now();
        while self.in_flight() > 0 {
            assert!(started.elapsed() < PATIENCE, "{} still in flight", self.in_flight());
            self.turn(Duration::from_millis(100));
        }
    }

    /// The bytes in a completion's pool buffer, which is returned.
    pub fn take_bytes(&mut self, completion: &mut Completion) -> Vec<u8> {
        let Some(buffer) = completion.buffer.take() else {
            return Vec::new();
        };
        assert_eq!(usize::try_from(completion.result), Ok(buffer.len()));
        buffer.to_vec()
    }

    /// Releases a descriptor, as an embedder does before it closes it.
    pub fn release(&mut self, descriptor: &impl AsRawFd) {
        self.engine.driver_mut().release(descriptor.as_raw_fd());
    }

    /// Receives once into `capacity` bytes.
    pub fn recv(&mut self, fd: RawFd, capacity: usize) -> (i32, Vec<u8>) {
        let buf = RecvBuf::with_capacity(capacity);
        let completion = self.run(Request::Recv(Recv { fd, buf }));
        let Some(Request::Recv(recv)) = completion.request else {
            panic!("{completion:?}");
        };
        (completion.result, recv.buf.into_vec())
    }
}

/// The result of a receive and its bytes.
pub fn recv_of(completion: Completion) -> (i32, Vec<u8>) {
    let Some(Request::Recv(recv)) = completion.request else {
        panic!("{completion:?}");
    };
    (completion.result, recv.buf.into_vec())
}

/// One receive of at most `capacity` bytes.
pub fn recv(fd: RawFd, capacity: usize) -> Request {
    let buf = RecvBuf::with_capacity(capacity);
    Request::Recv(Recv { fd, buf })
}

/// One send of a copy of `bytes`.
pub fn send(fd: RawFd, bytes: &[u8]) -> Request {
    let buf = SendBuf::from(bytes.to_vec());
    Request::Send(ringloop::embed::op::Send { fd, buf })
}

/// One read of at most 64 bytes.
pub fn read(fd: RawFd, offset: Option<u64>) -> Request {
    let buf = RecvBuf::with_capacity(64);
    Request::Read(ringloop::embed::op::Read { fd, buf, offset })
}

/// A connected TCP pair: ours, non-blocking; and the peer's, blocking.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    ours.set_nodelay(true).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    (ours, peer)
}

/// A listener for the driver.
pub fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

pub fn connect_to(listener: &TcpListener) -> TcpStream {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Makes the peer's close a reset.
pub fn reset(peer: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = libc::socklen_t::try_from(size_of::<libc::linger>()).unwrap();
    let at = (&raw const linger).cast();
    let fd = peer.as_raw_fd();
    // SAFETY: `at` points to a live `linger` of `len` bytes.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len) };
    assert_eq!(done, 0);
}

pub fn write_all(peer: &mut impl Write, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
}

pub fn read_exact(peer: &mut impl Read, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    peer.read_exact(&mut bytes).unwrap();
    bytes
}

/// True if the peer sees the end of the stream, or a reset.
pub fn is_closed(peer: &mut impl Read) -> bool {
    match peer.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.raw_os_error() == Some(libc::ECONNRESET),
    }
}

/// Foreign memory that records when it is released, how often, and whether it is written to after
/// that. It is not freed while it is watched, so a late write is detected, not undefined.
#[derive(Debug)]
pub struct Foreign {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory: Box<[Cell<u8>]>,
    releases: Cell<u32>,
}

const POISON: u8 = 0xA5;

unsafe fn released(owner: *mut ()) {
    // SAFETY: `owner` came from `Rc::into_raw` in `lend`, and is released once per loan.
    let shared = unsafe { Rc::from_raw(owner.cast_const().cast::<Shared>()) };
    shared.releases.set(shared.releases.get() + 1);
    for byte in &shared.memory {
        byte.set(POISON);
    }
}

impl Foreign {
    pub fn new(len: usize) -> Self {
        let shared = Shared {
            memory: vec![Cell::new(b'.'); len].into_boxed_slice(),
            releases: Cell::new(0),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Memory that holds `bytes`.
    pub fn holding(bytes: &[u8]) -> Self {
        let foreign = Self::new(bytes.len());
        for (cell, byte) in foreign.shared.memory.iter().zip(bytes) {
            cell.set(*byte);
        }
        foreign
    }

    fn lend(&self) -> (*mut u8, usize, *mut ()) {
        let owner = Rc::into_raw(Rc::clone(&self.shared));
        let memory = self.shared.memory.as_ptr().cast_mut().cast::<u8>();
        (memory, self.shared.memory.len(), owner.cast_mut().cast())
    }

    pub fn recv_buf(&self) -> RecvBuf {
        let (at, len, owner) = self.lend();
        // SAFETY: the memory lives as long as the `Rc` that `owner` holds.
        unsafe { RecvBuf::from_raw(at, len, owner, released) }
    }

    pub fn send_buf(&self) -> SendBuf {
        let (at, len, owner) = self.lend();
        // SAFETY: the memory lives as long as the `Rc` that `owner` holds.
        unsafe { SendBuf::from_raw(at, len, owner, released) }
    }

    pub fn releases(&self) -> u32 {
        self.shared.releases.get()
    }

    /// It was released exactly once, and not written to since.
    pub fn assert_released_untouched(&self) {
        assert_eq!(self.releases(), 1, "releases");
        let touched = self.shared.memory.iter().position(|b| b.get() != POISON);
        assert_eq!(touched, None, "written after the release");
    }
}
