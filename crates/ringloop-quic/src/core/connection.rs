//! What a program does with one connection.
//!
//! Owns: nothing; it borrows a connection of the core for a few calls. Called by: the futures of this crate,
//! embedders. Never does: wait; what cannot be done now says so, and an event tells when to come back.

use super::datagrams::DatagramRefusal;
use super::live::{Live, Queues};
use super::staged;
use super::tuning::announce_streams;
use crate::error::StreamError;
use crate::limits::STREAMS_LIMIT;
use crate::proto::concluded::{Agreed, PeerCertificates};
use crate::proto::{self, varint};
use crate::stats::Stats;
use crate::{Direction, StreamId};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// One connection of a core.
pub struct Connection<'a> {
    live: &'a mut Live,
    queues: &'a mut Queues,
    slot: u32,
}

impl std::fmt::Debug for Connection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("remote", &self.remote_address())
            .finish_non_exhaustive()
    }
}

/// What a handshake has agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Handshake {
    /// The application's protocol (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// Servers: the name that the client asked for.
    pub server_name: Option<String>,
    /// The cipher suite, by its IANA name.
    pub cipher_suite: Option<String>,
    /// The group of the key exchange.
    pub key_exchange: Option<String>,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

/// What a read has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes.
    Some(usize),
    /// Nothing now: `Event::Readable` tells when.
    Blocked,
    /// So many bytes, and then the stream's end, which is told once.
    End(usize),
}

/// What a write has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// So many bytes.
    Some(usize),
    /// None now: `Event::Writable` tells when.
    Blocked,
}

fn id_of(stream: StreamId) -> proto::StreamId {
    proto::StreamId::from(varint(stream.0))
}

impl<'a> Connection<'a> {
    pub(super) fn new(live: &'a mut Live, queues: &'a mut Queues, slot: u32) -> Self {
        Self { live, queues, slot }
    }

    /// Something may have to be sent.
    fn mark(&mut self) {
        self.queues.mark(self.live, self.slot);
    }

    /// Open a stream; `None` while the peer allows no more.
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let id = self.live.proto.streams().open(direction.into())?;
        Some(StreamId(id.into()))
    }

    /// Take a stream that the peer has opened.
    pub fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        let id = self.live.proto.streams().accept(direction.into())?;
        Some(StreamId(id.into()))
    }

    fn sends(&self, stream: StreamId) -> bool {
        let by_us = stream.is_by_client() == (self.live.proto.side() == proto::Side::Client);
        stream.direction() == Direction::Bi || by_us
    }

    fn receives(&self, stream: StreamId) -> bool {
        let by_us = stream.is_by_client() == (self.live.proto.side() == proto::Side::Client);
        stream.direction() == Direction::Bi || !by_us
    }

    /// Write some of `bytes`, which are copied.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Written, StreamError> {
        if self.live.staged.push(id_of(stream), bytes) {
            self.mark();
            return Ok(Written::Some(bytes.len()));
        }
        let written = self.sending(stream, |send| send.write(bytes))?;
        if written != Written::Blocked {
            let Live { proto, staged, .. } = &mut *self.live;
            staged.push_after(proto, id_of(stream));
        }
        Ok(written)
    }

    /// Write some of `chunks` without copying; those that are taken become empty, one may be cut.
    pub fn write_chunks(
        &mut self,
        stream: StreamId,
        chunks: &mut [Bytes],
    ) -> Result<Written, StreamError> {
        self.sending(stream, |send| {
            send.write_chunks(chunks).map(|written| written.bytes)
        })
    }

    fn sending(
        &mut self,
        stream: StreamId,
        write: impl FnOnce(&mut proto::SendStream<'_>) -> Result<usize, proto::WriteError>,
    ) -> Result<Written, StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        if !self.live.flush(Some(id_of(stream))) {
            return Ok(Written::Blocked);
        }
        let result = write(&mut self.live.proto.send_stream(id_of(stream)));
        self.mark();
        match result {
            Ok(count) => Ok(Written::Some(count)),
            Err(proto::WriteError::Blocked) => Ok(Written::Blocked),
            Err(proto::WriteError::Stopped(code)) => Err(StreamError::Stopped(code.into_inner())),
            Err(proto::WriteError::ClosedStream) => Err(StreamError::Closed),
        }
    }

    /// Say that nothing more will be written. A stream that the peer has stopped is reset with its code then
    /// (RFC 9000 §3.5), so that both ends forget it.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        if !self.live.flush(Some(id_of(stream))) {
            self.live.staged.finish();
            return Ok(());
        }
        let result = staged::finish(&mut self.live.proto, id_of(stream));
        self.mark();
        result.map_err(|error| match error {
            proto::FinishError::Stopped(code) => StreamError::Stopped(code.into_inner()),
            proto::FinishError::ClosedStream => StreamError::Closed,
        })
    }

    /// Whether the stream was finished behind what has no room yet: where the peer stops it then, it is reset after all.
    pub fn finishes_later(&self, stream: StreamId) -> bool {
        self.live.staged.finishes(id_of(stream))
    }

    /// Give up sending; what is on its way may be lost.
    pub fn reset(&mut self, stream: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        self.live.staged.clear(id_of(stream));
        let result = self
            .live
            .proto
            .send_stream(id_of(stream))
            .reset(varint(code));
        self.mark();
        result.map_err(|_| StreamError::Closed)
    }

    /// The code with which the peer stopped a stream, if it has; [`StreamError::Closed`] once all of it was
    /// acknowledged.
    pub fn stopped(&mut self, stream: StreamId) -> Result<Option<u64>, StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        let stopped = self.live.proto.send_stream(id_of(stream)).stopped();
        let code = stopped.map_err(|_| StreamError::Closed)?;
        Ok(code.map(proto::VarInt::into_inner))
    }

    /// Streams of a higher priority send first; 0 at the start.
    pub fn set_priority(&mut self, stream: StreamId, priority: i32) -> Result<(), StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        let result = self
            .live
            .proto
            .send_stream(id_of(stream))
            .set_priority(priority);
        result.map_err(|_| StreamError::Closed)
    }

    /// A stream's priority.
    pub fn priority(&mut self, stream: StreamId) -> Result<i32, StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        let priority = self.live.proto.send_stream(id_of(stream)).priority();
        priority.map_err(|_| StreamError::Closed)
    }

    /// Hand `take` what has come, in order, at most `bytes_max` in all, in pieces of at most that; stop where it
    /// says `false`. What was handed over is credit for the peer.
    ///
    /// Errors: [`StreamError::Reset`]; [`StreamError::Closed`] after the end, a reset or a stop.
    pub fn read(
        &mut self,
        stream: StreamId,
        mut bytes_max: usize,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Result<Read, StreamError> {
        if !self.receives(stream) {
            return Err(StreamError::Closed);
        }
        let mut recv = self.live.proto.recv_stream(id_of(stream));
        let mut chunks = recv.read(true).map_err(|error| match error {
            proto::ReadableError::ClosedStream | proto::ReadableError::IllegalOrderedRead => {
                StreamError::Closed
            }
        })?;
        let mut count = 0;
        let end = loop {
            if bytes_max == 0 {
                break Ok(Read::Some(count));
            }
            match chunks.next(bytes_max) {
                Ok(Some(chunk)) => {
                    count += chunk.bytes.len();
                    bytes_max -= chunk.bytes.len();
                    if !take(chunk.bytes) {
                        break Ok(Read::Some(count));
                    }
                }
                Ok(None) => break Ok(Read::End(count)),
                Err(proto::ReadError::Blocked) if count == 0 => break Ok(Read::Blocked),
                Err(proto::ReadError::Reset(code)) if count == 0 => {
                    break Err(StreamError::Reset(code.into_inner()));
                }
                // The next read tells the reset: one drops what was not yet read.
                Err(_) => break Ok(Read::Some(count)),
            }
        };
        let has_credit = chunks.finalize().should_transmit();
        self.live.tuning.on_read(count);
        if has_credit {
            self.mark();
        }
        end
    }

    /// Have the peer stop sending, and drop what has come.
    pub fn stop(&mut self, stream: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.receives(stream) {
            return Err(StreamError::Closed);
        }
        let mut recv = self.live.proto.recv_stream(id_of(stream));
        // Of a reset one the credit for its bytes was given when the reset came: a stop would give it once more.
        let result = match recv.received_reset() {
            Ok(Some(_)) => Ok(()),
            _ => recv.stop(varint(code)),
        };
        let Live { proto, tuning, .. } = &mut *self.live;
        tuning.queue_stream_credit(proto, stream.direction());
        self.mark();
        result.map_err(|_| StreamError::Closed)
    }

    /// Send a datagram, which is not copied. With `drops_oldest`, those that wait the longest make room.
    pub fn send_datagram(
        &mut self,
        bytes: Bytes,
        drops_oldest: bool,
    ) -> Result<(), DatagramRefusal> {
        self.send_datagram_until(bytes, drops_oldest, None)
    }

    /// Send a datagram, which is not copied, and forget it where it has not left by `deadline`.
    pub fn send_datagram_until(
        &mut self,
        bytes: Bytes,
        drops_oldest: bool,
        deadline: Option<Instant>,
    ) -> Result<(), DatagramRefusal> {
        let result = {
            let Live {
                proto, datagrams, ..
            } = &mut *self.live;
            datagrams.send(proto, bytes, drops_oldest, deadline)
        };
        self.mark();
        result
    }

    /// Take a datagram that has come.
    pub fn receive_datagram(&mut self) -> Option<Bytes> {
        self.live.datagrams.receive(&mut self.live.proto)
    }

    /// The longest datagram that may be sent now; `None`: the peer takes none.
    pub fn max_datagram_len(&mut self) -> Option<usize> {
        self.live.proto.datagrams().max_size()
    }

    /// Bytes of datagrams that may be sent now without waiting.
    pub fn datagram_room(&mut self) -> usize {
        self.live.datagrams.room(&mut self.live.proto)
    }

    /// Close the connection with the program's code and reason; streams and datagrams are dropped. What a client has
    /// still to say of its handshake goes first.
    pub fn close(&mut self, now: Instant, code: u64, reason: Bytes) {
        self.close_with(now, code, reason, false);
    }

    /// The same behind what was written, as far as it may be sent before anything else comes of the peer.
    pub fn close_behind(&mut self, now: Instant, code: u64, reason: Bytes) {
        self.close_with(now, code, reason, true);
    }

    fn close_with(&mut self, now: Instant, code: u64, reason: Bytes, is_behind: bool) {
        if let Some(log) = &self.live.log {
            log.set_now(now);
            log.closed(true, Some(code), &String::from_utf8_lossy(&reason));
        }
        self.live.close(now, code, reason, is_behind);
        self.mark();
    }

    /// Have the peer acknowledge something.
    pub fn ping(&mut self) {
        self.live.proto.ping();
        self.mark();
    }

    /// Change the keys. Does nothing before the handshake is complete, and while the last change is not yet
    /// acknowledged.
    pub fn update_keys(&mut self) {
        self.live.proto.force_key_update();
        self.mark();
    }

    /// Whether the handshake is confirmed (RFC 9001 §4.1.2): both ends know that it is complete.
    pub fn is_confirmed(&self) -> bool {
        self.live.is_confirmed()
    }

    /// Packets leave from another address from now on: use another connection id, tell the peer. `false`, and nothing
    /// done: the handshake is not confirmed, until which the address has to stay (RFC 9000 §9).
    #[must_use]
    pub fn local_address_changed(&mut self) -> bool {
        let is_confirmed = self.is_confirmed();
        if is_confirmed {
            self.live.moves();
            self.mark();
        }
        is_confirmed
    }

    /// What the handshake has agreed on; `None` before it has.
    pub fn handshake(&self) -> Option<Handshake> {
        let agreed = self.live.proto.crypto_session().handshake_data()?;
        let agreed = agreed.downcast::<Agreed>().ok()?;
        Some(Handshake {
            protocol: agreed.protocol,
            server_name: agreed.server_name,
            cipher_suite: agreed.cipher_suite.map(|suite| format!("{suite:?}")),
            key_exchange: agreed.key_exchange.map(|group| format!("{group:?}")),
            is_resumed: agreed.resumed,
        })
    }

    /// The peer's transport parameters, encoded (RFC 9000 §18); `None` before they are known.
    pub fn peer_transport_parameters(&self) -> Option<Vec<u8>> {
        let session = self.live.proto.crypto_session();
        let parameters = session.transport_parameters().ok()??;
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        Some(encoded)
    }

    /// The peer's certificates, its own first.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let chain = self.live.proto.crypto_session().peer_identity()?;
        Some(*chain.downcast::<PeerCertificates>().ok()?)
    }

    /// Fill `output` with bytes that only both ends of this connection can know (RFC 8446 §7.5); `false` where
    /// so many cannot be had.
    pub fn export_keying_material(&self, output: &mut [u8], label: &[u8], context: &[u8]) -> bool {
        let session = self.live.proto.crypto_session();
        session
            .export_keying_material(output, label, context)
            .is_ok()
    }

    /// Whether early data may be sent, or was.
    pub fn has_early_data(&self) -> bool {
        self.live.proto.has_0rtt()
    }

    /// Clients: whether the server took the early data; known once the handshake is complete.
    pub fn early_data_accepted(&self) -> bool {
        self.live.proto.accepted_0rtt()
    }

    /// Whether the handshake is under way.
    pub fn is_handshaking(&self) -> bool {
        self.live.proto.is_handshaking()
    }

    /// Whether this end began it.
    pub fn is_client(&self) -> bool {
        self.live.proto.side() == proto::Side::Client
    }

    /// The peer's address now.
    pub fn remote_address(&self) -> SocketAddr {
        self.live.proto.remote_address()
    }

    /// Servers: the address that the client has connected to, where it is known.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.live.proto.local_ip()
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.live.proto.rtt()
    }

    /// The connection id that the peer uses first, and the one that the client has named the server by at first; of
    /// cores that tell of ids (`EndpointConfig::connection_id_len`).
    pub fn ids(&self) -> Option<(Bytes, Bytes)> {
        self.live.ids.as_ref().map(|ids| ids.known())
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        let (receive_window_bytes, send_window_bytes) = self.live.tuning.windows();
        let datagrams = &self.live.datagrams;
        Stats {
            receive_window_bytes,
            send_window_bytes,
            datagrams_expired: datagrams.expired_count,
            datagrams_dropped: datagrams.dropped_count,
            datagrams_unread: datagrams.unread_count,
            ..self.live.proto.stats().into()
        }
    }

    /// How many streams of a direction the peer may have open at a time; at most [`STREAMS_LIMIT`].
    pub fn set_streams_max(&mut self, direction: Direction, count: u64) {
        let (count, dir) = (count.min(STREAMS_LIMIT), direction.into());
        self.live.tuning.fix_streams(dir, count);
        announce_streams(&mut self.live.proto, dir, count);
        self.mark();
    }

    /// How many bytes the peer may send ahead of the readers, all streams together; it does not grow then.
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.live.tuning.fix_receive(bytes);
        self.live.proto.set_receive_window(varint(bytes));
        self.mark();
    }

    /// How many bytes may be written and not acknowledged, all streams together; it does not follow
    /// the congestion window then.
    pub fn set_send_window(&mut self, bytes: u64) {
        self.live.tuning.fix_send(bytes);
        self.live.proto.set_send_window(bytes);
        // Writers that wait may go on.
        self.mark();
    }
}
