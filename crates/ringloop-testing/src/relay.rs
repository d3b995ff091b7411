//! A faulty network, in a thread of this process; seeded, so that failures are roughly
//! reproducible.

use std::collections::BinaryHeap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Faults of datagrams, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lost: u64,
    pub doubled: u64,
    pub corrupted: u64,
    pub reordered: u64,
    pub delay: Duration,
    /// Longer datagrams are dropped, as on a path with this MTU.
    pub len_max: Option<usize>,
}

pub struct Relay {
    pub address: SocketAddr,
    control: Arc<Control>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Control {
    stops: AtomicBool,
    /// Everything is dropped.
    is_hole: AtomicBool,
    /// The server sees another port of the client from now on (NAT rebinding).
    rebinds: AtomicBool,
    passed: AtomicU64,
    harmed: AtomicU64,
}

struct Waiting {
    due: Instant,
    number: u64,
    to_server: bool,
    bytes: Vec<u8>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl Relay {
    /// Starts a relay between one client and `server`.
    pub fn start(server: SocketAddr, faults: Faults, seed: u64) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let control = Arc::new(Control::default());
        let thread = std::thread::spawn({
            let control = Arc::clone(&control);
            move || run(&front, server, faults, seed, &control)
        });
        Self { address, control, thread: Some(thread) }
    }

    pub fn set_hole(&self, is_hole: bool) {
        self.control.is_hole.store(is_hole, Ordering::SeqCst);
    }

    pub fn rebind(&self) {
        self.control.rebinds.store(true, Ordering::SeqCst);
    }

    pub fn passed(&self) -> u64 {
        self.control.passed.load(Ordering::SeqCst)
    }

    pub fn harmed(&self) -> u64 {
        self.control.harmed.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.stops.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn socket() -> UdpSocket {
    let socket = ringloop::net::UdpSocket::bind_addr(crate::quic::any()).unwrap();
    // As much as the kernel grants: the thread may have to wait for CPU time.
    socket.set_receive_buffer(4 << 20).unwrap();
    let socket = UdpSocket::from(OwnedFd::from(socket));
    socket.set_nonblocking(true).unwrap();
    socket
}

fn run(front: &UdpSocket, server: SocketAddr, faults: Faults, seed: u64, control: &Control) {
    let mut back = socket();
    let mut client = None;
    let mut waiting: BinaryHeap<Waiting> = BinaryHeap::new();
    let mut dice = seed | 1;
    let mut number = 0;
    let mut buf = vec![0; 65_536];
    while !control.stops.load(Ordering::SeqCst) {
        let mut is_idle = true;
        if control.rebinds.swap(false, Ordering::SeqCst) {
            back = socket();
        }
        for _ in 0..64 {
            let (len, to_server) = match front.recv_from(&mut buf) {
                Ok((len, source)) => {
                    client = Some(source);
                    (len, true)
                }
                Err(_) => match back.recv_from(&mut buf) {
                    Ok((len, _)) => (len, false),
                    Err(_) => break,
                },
            };
            is_idle = false;
            control.passed.fetch_add(1, Ordering::SeqCst);
            let mut chance = |of_thousand: u64| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                let hit = (dice >> 20) % 1000 < of_thousand;
                control.harmed.fetch_add(hit.into(), Ordering::SeqCst);
                hit
            };
            let is_too_long = faults.len_max.is_some_and(|len_max| len > len_max);
            if is_too_long || control.is_hole.load(Ordering::SeqCst) || chance(faults.lost) {
                continue;
            }
            let mut bytes = buf[..len].to_vec();
            if chance(faults.corrupted) {
                let at = number as usize % len;
                bytes[at] ^= 0x10;
            }
            let mut due = Instant::now() + faults.delay;
            if chance(faults.reordered) {
                due += Duration::from_millis(3);
            }
            for _ in 0..=u64::from(chance(faults.doubled)) {
                number += 1;
                waiting.push(Waiting { due, number, to_server, bytes: bytes.clone() });
            }
        }
        while waiting.peek().is_some_and(|first| first.due <= Instant::now()) {
            let next = waiting.pop().unwrap();
            is_idle = false;
            if next.to_server {
                drop(back.send_to(&next.bytes, server));
            } else if let Some(client) = client {
                drop(front.send_to(&next.bytes, client));
            }
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
