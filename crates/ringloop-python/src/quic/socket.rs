//! GRO and GSO batches of datagrams from and to the kernel.
//!
//! The socket belongs to the application, which keeps it open; only its descriptor is used here.
//! Memory for system calls belongs to the thread, not the endpoint: a thousand idle endpoints hold
//! no buffers.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Instant;

use ringloop::embed::sys::datagram::{self, Batch, Control, Message};
use ringloop::embed::sys::{reserve, socket};
use ringloop_quic::core::{Core, Datagram, Transmit};
use ringloop_quic::limits::{MESSAGE_BYTES_MAX, TRANSMITS_PER_TURN};
use ringloop_quic::sender::Sender;
use ringloop_quic::{Bytes, BytesMut};

use crate::limits::{
    QUIC_TRAIN_POOLED_BYTES, QUIC_TRAINS_PER_CALL, QUIC_TRAINS_PER_TURN, QUIC_TRAINS_POOLED,
};

thread_local! {
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
    static TRAINS: RefCell<TrainMemory> = const { RefCell::new(TrainMemory(Vec::new())) };
    static PACKETS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Settings of a socket.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Send GSO batches (`UDP_SEGMENT`) of at most this many datagrams.
    pub segments_max: usize,
    /// Receive GRO batches (`UDP_GRO`).
    pub gro: bool,
    pub ecn: bool,
    /// Kernel buffer size to request, for each direction.
    pub buffer: usize,
}

/// One more than usual, so that the same call shows that there are no more.
const WANTED_MIN: usize = 2;

/// Progress of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything that may be sent now was sent.
    Done,
    /// There is more; other callbacks run first.
    More,
    /// The socket is full.
    Full,
}

/// A UDP socket, by its descriptor.
pub struct Socket {
    fd: RawFd,
    is_v6: bool,
    is_unfragmented: bool,
    settings: Settings,
    sender: Sender,
    /// Batches that the next call requests.
    wanted: usize,
    /// The message that was not sent because the socket was full.
    waiting: Option<(Transmit, Vec<u8>)>,
}

fn with_room(batch: &mut Option<Batch>) -> io::Result<&mut Batch> {
    let made = match batch.take() {
        Some(batch) => batch,
        None => Batch::new(QUIC_TRAINS_PER_CALL, usize::from(u16::MAX))?,
    };
    Ok(batch.insert(made))
}

impl Socket {
    /// Prepares a bound, non-blocking UDP socket. Options that the kernel or the socket rejects are
    /// skipped.
    pub fn new(fd: RawFd, settings: Settings) -> io::Result<Self> {
        BATCH.with_borrow_mut(|batch| with_room(batch).map(drop))?;
        let address = socket::local_addr(fd)?.to_std();
        let is_v6 = address.is_some_and(|address| address.is_ipv6());
        if settings.gro {
            drop(datagram::set_receive_trains(fd, true));
        }
        if settings.ecn {
            drop(datagram::set_receive_ecn(fd, true));
        }
        drop(datagram::set_receive_local_ip(fd, true));
        let is_unfragmented = datagram::set_unfragmented(fd).is_ok();
        if let Ok(bytes) = i32::try_from(settings.buffer)
            && bytes > 0
        {
            for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
                drop(socket::set_option_int(fd, libc::SOL_SOCKET, name, bytes));
            }
        }
        Ok(Self {
            fd,
            is_v6,
            is_unfragmented,
            settings,
            sender: Sender::new(fd, settings.segments_max, settings.ecn),
            wanted: WANTED_MIN,
            waiting: None,
        })
    }

    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    pub fn is_unfragmented(&self) -> bool {
        self.is_unfragmented
    }

    pub fn settings(&self) -> Settings {
        self.settings
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(self.fd).ok()?.to_std()
    }

    /// Receives for the core, up to a budget.
    pub fn receive(&mut self, now: Instant, core: &mut Core) {
        self.sender.hear(now, core);
        BATCH.with_borrow_mut(|batch| {
            // The endpoint's creating thread has one; another thread without memory leaves
            // datagrams in the socket.
            let Ok(batch) = with_room(batch) else { return };
            let mut left = QUIC_TRAINS_PER_TURN;
            while left > 0 {
                let wanted = self.wanted.min(left);
                // An ICMP error of an earlier send, or out of memory for a moment: like a lost
                // datagram.
                let count = batch
                    .receive(self.fd, Control::Wanted, wanted)
                    .unwrap_or_default();
                for message in batch.received() {
                    feed(core, now, &message);
                }
                left -= count;
                if count < wanted {
                    self.wanted = (count + 1)
                        .next_power_of_two()
                        .clamp(WANTED_MIN, self.wanted);
                    return;
                }
                self.wanted = (wanted * 2).min(QUIC_TRAINS_PER_CALL);
            }
        });
    }

    /// Sends what may be sent now, up to a budget.
    pub fn transmit(&mut self, now: Instant, core: &mut Core) -> Progress {
        self.sender.hear(now, core);
        if let Some((transmit, bytes)) = self.waiting.take()
            && self.sender.send(now, core, &transmit, &bytes).is_err()
        {
            self.waiting = Some((transmit, bytes));
            return Progress::Full;
        }
        PACKETS.with_borrow_mut(|packets| {
            if packets.capacity() < MESSAGE_BYTES_MAX {
                packets.reserve_exact(MESSAGE_BYTES_MAX);
            }
            for _ in 0..TRANSMITS_PER_TURN {
                let segments_max = self.sender.segments_max();
                let Some(transmit) = core.transmit(now, segments_max, packets) else {
                    return Progress::Done;
                };
                if self.sender.send(now, core, &transmit, packets).is_err() {
                    self.waiting = Some((transmit, packets.clone()));
                    return Progress::Full;
                }
            }
            Progress::More
        })
    }
}

fn feed(core: &mut Core, now: Instant, message: &Message<'_>) {
    let copy = |payload: &[u8]| TRAINS.with_borrow_mut(|trains| trains.copy(payload));
    for datagram in Datagram::received_by(message, copy) {
        core.receive(now, datagram);
    }
}

/// Memory for copies of long batches, reused once it is unreferenced. The allocator would return it
/// to the kernel after each turn, and every page would fault again in the next one.
struct TrainMemory(Vec<BytesMut>);

impl TrainMemory {
    /// `None` if there is no memory: the batch counts as lost, and its sender retransmits.
    fn copy(&mut self, payload: &[u8]) -> Option<BytesMut> {
        // Unread bytes of a short batch must not pin a long buffer.
        if payload.len() < QUIC_TRAIN_POOLED_BYTES {
            return copied(payload);
        }
        let Self(pool) = self;
        let free = |memory: &mut BytesMut| memory.try_reclaim(payload.len());
        let at = pool.iter_mut().position(free).unwrap_or(pool.len());
        if at == QUIC_TRAINS_POOLED {
            // Readers keep much of it referenced.
            return copied(payload);
        }
        if at == pool.len() {
            let mut memory = room_for(usize::from(u16::MAX))?;
            // `Bytes` takes over a full vector without a copy.
            memory.resize(memory.capacity(), 0);
            let mut memory = BytesMut::from(Bytes::from(memory));
            memory.clear();
            pool.push(memory);
        }
        let memory = &mut pool[at];
        memory.extend_from_slice(payload);
        Some(memory.split())
    }
}

fn copied(payload: &[u8]) -> Option<BytesMut> {
    let mut copy = room_for(payload.len())?;
    copy.extend_from_slice(payload);
    Some(Bytes::from(copy).into())
}

/// Separate memory; requires half of the allocator's reserve to be free.
fn room_for(len: usize) -> Option<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).ok()?;
    (!reserve::holds(room.as_ptr()) || !reserve::is_low()).then_some(room)
}
