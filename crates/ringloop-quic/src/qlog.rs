//! What a connection did, packet by packet, for people and tools: qlog 0.3 as a sequence of JSON records
//! (RFC 7464), a file a connection, which qvis opens.
//!
//! Owns: where records go ([`Qlog`], [`Target`]), and what is known of a connection's packets (`Log`). Called by:
//! the core, which says what time it is and how the connection stands; the packet keys, which see each packet in the
//! clear. Never does: log what programs send; of streams and datagrams it has numbers and lengths.
//!
//! The protocol engine does not say which packets it takes for lost, only how many: they are the oldest that
//! count against its window and were not acknowledged, and are told so.

mod frames;

use crate::stats::Stats;
use crate::store;
use frames::{Frames, escaped};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Which end wrote a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VantagePoint {
    /// The one that began the connection.
    Client,
    /// The other.
    Server,
}

impl VantagePoint {
    /// `client` or `server`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// What tells a connection's log from others.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Trace {
    /// Who writes it.
    pub vantage_point: VantagePoint,
    /// The first connection id that the client has named the server by, in hexadecimal: the same in both ends' logs.
    pub original_id: String,
    /// The peer's address.
    pub remote: SocketAddr,
}

/// Where logs go.
pub trait Target: Send + Sync {
    /// Open one; `None`: this connection is not logged. Records are written on the thread that drives the connection,
    /// some thousand bytes at a time.
    fn open(&self, trace: &Trace) -> Option<Box<dyn Write + Send>>;
}

struct Directory(PathBuf);

impl Target for Directory {
    fn open(&self, trace: &Trace) -> Option<Box<dyn Write + Send>> {
        let name = format!("{}_{}.sqlog", trace.original_id, trace.vantage_point.name());
        // A log that cannot be written is no reason to lose the connection.
        let file = File::create(self.0.join(name)).ok()?;
        Some(Box::new(file))
    }
}

/// Log connections. Clones log to the same place.
#[derive(Clone)]
pub struct Qlog {
    target: Arc<dyn Target>,
    title: Arc<str>,
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog")
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

impl Qlog {
    /// A file a connection, `<original id>_<client or server>.sqlog`, in a directory that is there. Connections whose
    /// file cannot be made are not logged.
    pub fn to_directory(path: impl Into<PathBuf>) -> Self {
        Self::to(Arc::new(Directory(path.into())))
    }

    /// The same, where files can be made there now.
    pub fn in_directory(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        std::fs::read_dir(&path)?;
        store::try_to_write(&path)?;
        Ok(Self::to_directory(path))
    }

    /// To where the target says.
    pub fn to(target: Arc<dyn Target>) -> Self {
        Self {
            target,
            title: Arc::from("ringloop-quic"),
        }
    }

    /// What tools show as the log's name.
    #[must_use]
    pub fn title(mut self, title: &str) -> Self {
        self.title = Arc::from(title);
        self
    }

    /// Begin a connection's log.
    pub(crate) fn open(&self, now: Instant, trace: &Trace) -> Option<Arc<Log>> {
        let out = self.target.open(trace)?;
        let mut records = Records {
            out: BufWriter::with_capacity(16 << 10, out),
            began: now,
            now,
            vantage_point: trace.vantage_point,
            outstanding: Outstanding::default(),
            logged: Stats::default(),
            logged_in_flight_len: 0,
            knows_peer: false,
        };
        records.header(&self.title, trace);
        Some(Arc::new(Log(Mutex::new(records))))
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Log>>> = const { RefCell::new(None) };
}

/// Have the connection that `begin` makes write to this log: the engine makes its keys meanwhile.
pub(crate) fn with_log<T>(log: Option<Arc<Log>>, begin: impl FnOnce() -> T) -> T {
    CURRENT.set(log);
    let result = begin();
    CURRENT.set(None);
    result
}

/// The log of the connection that is being made on this thread.
pub(crate) fn current() -> Option<Arc<Log>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The number spaces of packets (RFC 9000 §12.3), with the kinds of packets in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Initial,
    EarlyData,
    Handshake,
    Short,
}

impl Kind {
    /// By a header of version 1.
    fn of(header: &[u8]) -> Self {
        match header.first().copied().unwrap_or(0) {
            first if first & 0x80 == 0 => Self::Short,
            first if first & 0x30 == 0x00 => Self::Initial,
            first if first & 0x30 == 0x10 => Self::EarlyData,
            _ => Self::Handshake,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::EarlyData => "0RTT",
            Self::Handshake => "handshake",
            Self::Short => "1RTT",
        }
    }

    fn space(self) -> u8 {
        match self {
            Self::Initial => 0,
            Self::Handshake => 1,
            Self::EarlyData | Self::Short => 2,
        }
    }
}

/// The packets that count against the congestion window and of which nothing was heard; it bounds them. Others, which
/// only acknowledge, may never be acknowledged themselves.
#[derive(Default)]
struct Outstanding {
    /// By number space and number: the kind, and how long it is.
    packets: BTreeMap<(u8, u64), (Kind, usize)>,
    /// All of them together.
    bytes: usize,
}

impl Outstanding {
    fn insert(&mut self, kind: Kind, number: u64, len: usize) {
        self.packets.insert((kind.space(), number), (kind, len));
        self.bytes += len;
    }

    fn remove(&mut self, place: (u8, u64)) {
        if let Some((_, len)) = self.packets.remove(&place) {
            self.bytes -= len;
        }
    }

    /// Forget those of a number space whose numbers were acknowledged.
    fn acked(&mut self, space: u8, ranges: &[RangeInclusive<u64>]) {
        for range in ranges {
            let (first, last) = ((space, *range.start()), (space, *range.end()));
            // A peer may acknowledge what it likes.
            while first <= last
                && let Some((&place, _)) = self.packets.range(first..=last).next()
            {
                self.remove(place);
            }
        }
    }

    /// The keys of the handshake are gone, and nothing of it is waited for.
    fn handshake_over(&mut self) {
        while let Some((&place, _)) = self.packets.range(..(Kind::Short.space(), 0)).next() {
            self.remove(place);
        }
    }

    /// The oldest, of the handshake first, as one that is lost.
    fn lose(&mut self) -> Option<(Kind, u64)> {
        let ((_, number), (kind, len)) = self.packets.pop_first()?;
        self.bytes -= len;
        Some((kind, number))
    }
}

/// One connection's log. What cannot be written is lost, the connection goes on.
pub(crate) struct Log(Mutex<Records>);

struct Records {
    out: BufWriter<Box<dyn Write + Send>>,
    began: Instant,
    now: Instant,
    vantage_point: VantagePoint,
    outstanding: Outstanding,
    logged: Stats,
    logged_in_flight_len: usize,
    knows_peer: bool,
}

impl Log {
    fn records(&self) -> MutexGuard<'_, Records> {
        // A record that was cut by a panic is one that tools skip.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes now happens now.
    pub(crate) fn set_now(&self, now: Instant) {
        self.records().now = now;
    }

    /// A packet, before it is sealed: its header, and its frames.
    pub(crate) fn sent(&self, number: u64, header: &[u8], payload: &[u8], tag_len: usize) {
        let mut records = self.records();
        let (kind, frames) = (Kind::of(header), Frames::read(payload));
        let len = header.len() + payload.len() + tag_len;
        let packet = packet(kind, number, len, &frames);
        records.event("transport:packet_sent", &packet);
        let is_probe = frames.is_probe && len > usize::from(records.logged.mtu_bytes).max(1200);
        if frames.is_in_flight && !is_probe {
            records.outstanding.insert(kind, number, len);
        }
    }

    /// A packet that was opened.
    pub(crate) fn received(&self, number: u64, header: &[u8], payload: &[u8], tag_len: usize) {
        let mut records = self.records();
        let (kind, frames) = (Kind::of(header), Frames::read(payload));
        let len = header.len() + payload.len() + tag_len;
        let packet = packet(kind, number, len, &frames);
        records.event("transport:packet_received", &packet);
        records.outstanding.acked(kind.space(), &frames.acked);
        if kind == Kind::Short && !frames.acked.is_empty() {
            records.outstanding.handshake_over();
        }
    }

    /// Transport parameters as they went into the handshake.
    pub(crate) fn parameters(&self, is_ours: bool, bytes: &[u8]) {
        let mut records = self.records();
        if !is_ours && std::mem::replace(&mut records.knows_peer, true) {
            return;
        }
        let owner = if is_ours { "local" } else { "remote" };
        let data = format!("\"owner\":\"{owner}\"{}", frames::parameters(bytes));
        records.event("transport:parameters_set", &data);
    }

    /// How the connection stands, once nothing more can be sent; tells what has changed.
    pub(crate) fn standing(&self, stats: &Stats) {
        let mut records = self.records();
        for _lost in records.logged.packets_lost..stats.packets_lost {
            let Some((kind, number)) = records.outstanding.lose() else {
                break;
            };
            let kind = kind.name();
            let data =
                format!("\"header\":{{\"packet_type\":\"{kind}\",\"packet_number\":{number}}}");
            records.event("recovery:packet_lost", &data);
        }
        records.metrics(stats);
    }

    /// It is over: by this end's word, or not.
    pub(crate) fn closed(&self, is_ours: bool, code: Option<u64>, reason: &str) {
        let owner = if is_ours { "local" } else { "remote" };
        let code = code.map_or(String::new(), |code| format!(",\"connection_code\":{code}"));
        let reason = escaped(reason);
        let data = format!("\"owner\":\"{owner}\"{code},\"reason\":\"{reason}\"");
        let mut records = self.records();
        records.event("connectivity:connection_closed", &data);
        // What the end is told to read is there by then.
        drop(records.out.flush());
    }
}

fn packet(kind: Kind, number: u64, len: usize, frames: &Frames) -> String {
    format!(
        "\"header\":{{\"packet_type\":\"{}\",\"packet_number\":{number}}},\"raw\":{{\"length\":{len}}},\"frames\":[{}]",
        kind.name(),
        frames.json
    )
}

impl Records {
    fn header(&mut self, title: &str, trace: &Trace) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let epoch_ms = since_epoch.map_or(0, |since| since.as_millis());
        let (title, point) = (escaped(title), trace.vantage_point.name());
        let id = &trace.original_id;
        let line = format!(
            "\u{1e}{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"title\":\"{title}\",\
             \"trace\":{{\"title\":\"{title}\",\"vantage_point\":{{\"name\":\"ringloop-quic\",\"type\":\"{point}\"}},\
             \"common_fields\":{{\"ODCID\":\"{id}\",\"group_id\":\"{id}\",\"protocol_type\":[\"QUIC\"],\
             \"time_format\":\"relative\",\"reference_time\":{epoch_ms}}}}}}}\n"
        );
        drop(self.out.write_all(line.as_bytes()));
        let version = if trace.remote.is_ipv4() { "v4" } else { "v6" };
        let (ip, port) = (trace.remote.ip(), trace.remote.port());
        // The sender's side is the client's; this end's own address is the socket's business.
        let side = match trace.vantage_point {
            VantagePoint::Client => "dst",
            VantagePoint::Server => "src",
        };
        let data = format!(
            "\"ip_version\":\"{version}\",\"{side}_ip\":\"{ip}\",\"{side}_port\":{port},\"protocol\":\"QUIC\""
        );
        self.event("connectivity:connection_started", &data);
    }

    fn event(&mut self, name: &str, data: &str) {
        let time_ms = self.now.saturating_duration_since(self.began).as_secs_f64() * 1e3;
        let _ = writeln!(
            self.out,
            "\u{1e}{{\"time\":{time_ms:.3},\"name\":\"{name}\",\"data\":{{{data}}}}}"
        );
    }

    fn metrics(&mut self, stats: &Stats) {
        let in_flight_len = self.outstanding.bytes;
        let fields = |stats: &Stats, in_flight_len: usize| {
            let ms = |duration: Duration| format!("{:.3}", duration.as_secs_f64() * 1e3);
            [
                ("smoothed_rtt", ms(stats.rtt)),
                ("min_rtt", ms(stats.rtt_min)),
                (
                    "congestion_window",
                    stats.congestion_window_bytes.to_string(),
                ),
                ("bytes_in_flight", in_flight_len.to_string()),
            ]
        };
        let before = fields(&self.logged, self.logged_in_flight_len);
        let now = fields(stats, in_flight_len);
        let changed = now
            .iter()
            .zip(&before)
            .filter(|(now, before)| now != before);
        let data: Vec<String> = changed
            .map(|((name, value), _)| format!("\"{name}\":{value}"))
            .collect();
        self.logged = *stats;
        self.logged_in_flight_len = in_flight_len;
        if !data.is_empty() {
            self.event("recovery:metrics_updated", &data.join(","));
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        drop(self.out.flush());
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("vantage_point", &self.vantage_point)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        struct Nowhere;
        impl Target for Nowhere {
            fn open(&self, _trace: &Trace) -> Option<Box<dyn Write + Send>> {
                Some(Box::new(std::io::sink()))
            }
        }
        let trace = Trace {
            vantage_point: VantagePoint::Client,
            original_id: String::new(),
            remote: ([127, 0, 0, 1], 1).into(),
        };
        let log = Qlog::to(Arc::new(Nowhere)).open(Instant::now(), &trace);
        Arc::into_inner(log.unwrap()).unwrap()
    }

    const SHORT: [u8; 9] = [0x40, 0, 0, 0, 0, 0, 0, 0, 0];
    const INITIAL: [u8; 9] = [0xc0, 0, 0, 0, 1, 0, 0, 0, 0];
    const PING: [u8; 1] = [0x01];

    /// Everything from 0 to `largest` below 64.
    fn ack(largest: u8) -> [u8; 5] {
        [0x02, largest, 0, 0, largest]
    }

    #[test]
    fn what_only_acknowledges_is_not_waited_for() {
        let log = log();
        for number in 0..5000 {
            log.sent(number, &SHORT, &ack(9), 16);
        }
        assert!(log.records().outstanding.packets.is_empty());
        assert_eq!(log.records().outstanding.bytes, 0);
    }

    #[test]
    fn the_sum_in_flight_is_that_of_the_packets() {
        let log = log();
        let sum = |log: &Log| {
            let records = log.records();
            let lens = records.outstanding.packets.values().map(|(_, len)| len);
            assert_eq!(records.outstanding.bytes, lens.sum::<usize>());
            (records.outstanding.packets.len(), records.outstanding.bytes)
        };
        log.sent(0, &INITIAL, &PING, 16);
        for number in 0..20 {
            log.sent(number, &SHORT, &PING, 16);
        }
        assert_eq!(sum(&log), (21, 21 * 26));
        // Another space's numbers.
        log.received(0, &INITIAL, &ack(3), 16);
        assert_eq!(sum(&log), (20, 20 * 26));
        log.sent(1, &INITIAL, &PING, 16);
        log.received(0, &SHORT, &PING, 16);
        assert_eq!(sum(&log).0, 21);
        log.received(1, &SHORT, &ack(9), 16);
        assert_eq!(sum(&log), (10, 10 * 26));
        let stats = Stats {
            packets_lost: 4,
            ..Stats::default()
        };
        log.standing(&stats);
        assert_eq!(sum(&log), (6, 6 * 26));
    }
}
