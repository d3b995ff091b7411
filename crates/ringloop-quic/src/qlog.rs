//! What a connection did, packet by packet, for people and tools: qlog 0.3 as a sequence of JSON records
//! (RFC 7464), a file a connection, which qvis opens.
//!
//! Owns: where records go ([`Qlog`], [`Target`]), and what is known of a connection's packets (`Log`). Called by:
//! the core, which says what time it is and how the connection stands; the packet keys, which see each packet in the
//! clear. Never does: log what programs send; of streams and datagrams it has numbers and lengths.
//!
//! The protocol engine does not say which packets it takes for lost, only how many: they are the oldest that
//! were not acknowledged, and are told so.

mod frames;

use crate::stats::Stats;
use frames::Frames;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
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
            outstanding: BTreeMap::new(),
            sent_count: 0,
            told: Stats::default(),
            told_in_flight_len: 0,
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

/// One that was sent, and of which nothing was heard.
struct Outstanding {
    kind: Kind,
    number: u64,
    /// 0 where it does not count against the congestion window.
    in_flight_len: usize,
}

/// One connection's log. What cannot be written is lost, the connection goes on.
pub(crate) struct Log(Mutex<Records>);

struct Records {
    out: BufWriter<Box<dyn Write + Send>>,
    began: Instant,
    now: Instant,
    vantage_point: VantagePoint,
    /// By the order in which they were sent. Bounded by the congestion window.
    outstanding: BTreeMap<u64, Outstanding>,
    sent_count: u64,
    told: Stats,
    told_in_flight_len: usize,
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
        let is_probe = frames.is_probe && len > usize::from(records.told.mtu_bytes).max(1200);
        if !is_probe {
            let order = records.sent_count;
            records.sent_count += 1;
            let in_flight_len = if frames.is_in_flight { len } else { 0 };
            let sent = Outstanding {
                kind,
                number,
                in_flight_len,
            };
            records.outstanding.insert(order, sent);
        }
    }

    /// A packet that was opened.
    pub(crate) fn received(&self, number: u64, header: &[u8], payload: &[u8], tag_len: usize) {
        let mut records = self.records();
        let (kind, frames) = (Kind::of(header), Frames::read(payload));
        let len = header.len() + payload.len() + tag_len;
        let packet = packet(kind, number, len, &frames);
        records.event("transport:packet_received", &packet);
        let acked = |sent: &Outstanding| {
            let mut ranges = frames.acked.iter();
            sent.kind.space() == kind.space() && ranges.any(|range| range.contains(&sent.number))
        };
        records.outstanding.retain(|_, sent| !acked(sent));
        if kind == Kind::Short && !frames.acked.is_empty() {
            // The keys of the others are gone, and nothing of them is waited for.
            records.outstanding.retain(|_, sent| sent.kind.space() == 2);
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
        for _lost in records.told.packets_lost..stats.packets_lost {
            let Some((_, lost)) = records.outstanding.pop_first() else {
                break;
            };
            let (kind, number) = (lost.kind.name(), lost.number);
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
        let lens = self.outstanding.values().map(|sent| sent.in_flight_len);
        let in_flight_len: usize = lens.sum();
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
        let before = fields(&self.told, self.told_in_flight_len);
        let now = fields(stats, in_flight_len);
        let changed = now
            .iter()
            .zip(&before)
            .filter(|(now, before)| now != before);
        let data: Vec<String> = changed
            .map(|((name, value), _)| format!("\"{name}\":{value}"))
            .collect();
        self.told = *stats;
        self.told_in_flight_len = in_flight_len;
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

/// A text within a JSON string.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            char if (char as u32) < 0x20 => {
                let _ = write!(escaped, "\\u{:04x}", char as u32);
            }
            char => escaped.push(char),
        }
    }
    escaped
}
