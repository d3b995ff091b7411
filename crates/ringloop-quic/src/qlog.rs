//! Logs of connections, packet by packet: qlog 0.3 as JSON text sequences (RFC 7464), one file per
//! connection, which qvis opens.
//!
//! Owns: where records go ([`Qlog`], [`Target`]), and a connection's outstanding packets (`Log`).
//! Called by: the core, which sets the time and reports metrics; the packet keys, which see each
//! packet in the clear. Application data is not logged; of streams and datagrams only ids and
//! lengths.
//!
//! The protocol engine does not report which packets it declares lost, only how many: they are the
//! oldest unacknowledged ones in flight, and are logged as such.

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
    /// The client.
    Client,
    /// The server.
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

/// Identifies a connection's log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Trace {
    /// Which end writes it.
    pub vantage_point: VantagePoint,
    /// The client's original destination id, in hexadecimal: the same in both ends' logs.
    pub original_id: String,
    /// The peer's address.
    pub remote: SocketAddr,
}

/// Destination of logs.
pub trait Target: Send + Sync {
    /// Opens a log; `None`: this connection is not logged. Records are written on the thread that
    /// drives the connection, some thousand bytes at a time.
    fn open(&self, trace: &Trace) -> Option<Box<dyn Write + Send>>;
}

struct Directory(PathBuf);

impl Target for Directory {
    fn open(&self, trace: &Trace) -> Option<Box<dyn Write + Send>> {
        let name = format!("{}_{}.sqlog", trace.original_id, trace.vantage_point.name());
        // A connection continues without its log.
        let file = File::create(self.0.join(name)).ok()?;
        Some(Box::new(file))
    }
}

/// Configuration of logs. Clones share the target.
#[derive(Clone)]
pub struct Qlog {
    target: Arc<dyn Target>,
    title: Arc<str>,
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog").field("title", &self.title).finish_non_exhaustive()
    }
}

impl Qlog {
    /// One file per connection, `<original id>_<client or server>.sqlog`, in an existing directory.
    /// If a file cannot be created, its connection is not logged.
    pub fn to_directory(path: impl Into<PathBuf>) -> Self {
        Self::to(Arc::new(Directory(path.into())))
    }

    /// The same, after checking that files can be created there.
    pub fn in_directory(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        std::fs::read_dir(&path)?;
        store::try_to_write(&path)?;
        Ok(Self::to_directory(path))
    }

    /// Logs to this target.
    pub fn to(target: Arc<dyn Target>) -> Self {
        Self { target, title: Arc::from("ringloop-quic") }
    }

    /// Sets the log's title.
    #[must_use]
    pub fn title(mut self, title: &str) -> Self {
        self.title = Arc::from(title);
        self
    }

    /// Starts a connection's log.
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

/// Makes the connection that `begin` creates write to this log: the engine creates its keys
/// meanwhile.
pub(crate) fn with_log<T>(log: Option<Arc<Log>>, begin: impl FnOnce() -> T) -> T {
    CURRENT.set(log);
    let result = begin();
    CURRENT.set(None);
    result
}

/// The log of the connection that this thread is creating.
pub(crate) fn current() -> Option<Arc<Log>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Packet types, with their number spaces (RFC 9000 §12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Initial,
    EarlyData,
    Handshake,
    Short,
}

impl Kind {
    /// The type of a version 1 header.
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

/// Packets in flight, bounded by the congestion window. ACK-only packets are not included, since
/// they may never be acknowledged.
#[derive(Default)]
struct Outstanding {
    /// By number space and packet number: the type and length.
    packets: BTreeMap<(u8, u64), (Kind, usize)>,
    /// Total length.
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

    /// Removes acknowledged packets of a number space.
    fn acked(&mut self, space: u8, ranges: &[RangeInclusive<u64>]) {
        for range in ranges {
            let (first, last) = ((space, *range.start()), (space, *range.end()));
            // A peer may acknowledge any range.
            while first <= last
                && let Some((&place, _)) = self.packets.range(first..=last).next()
            {
                self.remove(place);
            }
        }
    }

    /// The handshake keys are discarded, and with them its packets.
    fn handshake_over(&mut self) {
        while let Some((&place, _)) = self.packets.range(..(Kind::Short.space(), 0)).next() {
            self.remove(place);
        }
    }

    /// Removes the oldest packet as lost, handshake packets first.
    fn lose(&mut self) -> Option<(Kind, u64)> {
        let ((_, number), (kind, len)) = self.packets.pop_first()?;
        self.bytes -= len;
        Some((kind, number))
    }
}

/// A connection's log. Write errors lose records, not the connection.
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
        // Tools skip a record that a panic cut short.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time of the following records.
    pub(crate) fn set_now(&self, now: Instant) {
        self.records().now = now;
    }

    /// A packet before it is sealed: its header and frames.
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

    /// Transport parameters as sent in the handshake.
    pub(crate) fn parameters(&self, is_ours: bool, bytes: &[u8]) {
        let mut records = self.records();
        if !is_ours && std::mem::replace(&mut records.knows_peer, true) {
            return;
        }
        let owner = if is_ours { "local" } else { "remote" };
        let data = format!("\"owner\":\"{owner}\"{}", frames::parameters(bytes));
        records.event("transport:parameters_set", &data);
    }

    /// Metrics, once nothing more can be sent; logs changes only.
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

    /// Closed, locally or not.
    pub(crate) fn closed(&self, is_ours: bool, code: Option<u64>, reason: &str) {
        let owner = if is_ours { "local" } else { "remote" };
        let code = code.map_or(String::new(), |code| format!(",\"connection_code\":{code}"));
        let reason = escaped(reason);
        let data = format!("\"owner\":\"{owner}\"{code},\"reason\":\"{reason}\"");
        let mut records = self.records();
        records.event("connectivity:connection_closed", &data);
        // Readers expect a complete log at the end of the connection.
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
        // The sender is the client; the local address is not known here.
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
                ("congestion_window", stats.congestion_window_bytes.to_string()),
                ("bytes_in_flight", in_flight_len.to_string()),
            ]
        };
        let before = fields(&self.logged, self.logged_in_flight_len);
        let now = fields(stats, in_flight_len);
        let changed = now.iter().zip(&before).filter(|(now, before)| now != before);
        let data: Vec<String> =
            changed.map(|((name, value), _)| format!("\"{name}\":{value}")).collect();
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

    /// Acknowledges everything from 0 to `largest` below 64.
    fn ack(largest: u8) -> [u8; 5] {
        [0x02, largest, 0, 0, largest]
    }

    #[test]
    fn ack_only_packets_are_not_outstanding() {
        let log = log();
        for number in 0..5000 {
            log.sent(number, &SHORT, &ack(9), 16);
        }
        assert!(log.records().outstanding.packets.is_empty());
        assert_eq!(log.records().outstanding.bytes, 0);
    }

    #[test]
    fn bytes_in_flight_is_the_sum_of_packets() {
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
        // Packet numbers of another space.
        log.received(0, &INITIAL, &ack(3), 16);
        assert_eq!(sum(&log), (20, 20 * 26));
        log.sent(1, &INITIAL, &PING, 16);
        log.received(0, &SHORT, &PING, 16);
        assert_eq!(sum(&log).0, 21);
        log.received(1, &SHORT, &ack(9), 16);
        assert_eq!(sum(&log), (10, 10 * 26));
        let stats = Stats { packets_lost: 4, ..Stats::default() };
        log.standing(&stats);
        assert_eq!(sum(&log), (6, 6 * 26));
    }
}
