//! State shared by the streams of a connection.

use super::output::Output;
use crate::config::{Config, LocalStreams};
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::{Event, Transmit};
use crate::frame;
use crate::limits::{FIELD_SECTION_BYTES_MAX, IDLE_FRAMES_PER_MESSAGE, PRIORITIES_EARLY_MAX};
use crate::priority::Priority;
use crate::qpack::{Decoder, Encoder, Line};
use crate::settings::Settings;
use crate::stream_id::{Role, StreamId};
use bytes::BufMut;
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) local: LocalStreams,
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    pub(super) peer_settings: Option<Settings>,
    pub(super) events: VecDeque<Event>,
    pub(super) output: Output,
    /// The GOAWAY that we have sent.
    pub(super) go_away_sent: Option<u64>,
    /// A server's: the first stream id beyond all requests that were accepted.
    pub(super) requests_end: u64,
    /// Priorities of requests that have not arrived.
    priorities_early: VecDeque<(StreamId, Priority)>,
    /// A section that is being encoded.
    section: Vec<u8>,
    idle_frame_count: u32,
    reset_count: u32,
}

impl Shared {
    pub(super) fn new(role: Role, config: Config, local: LocalStreams) -> Self {
        let settings = &config.settings;
        let bytes_max = settings.field_section_bytes_max;
        let decoder = Decoder::new(
            settings.qpack_table_bytes_max,
            settings.qpack_blocked_streams_max,
            bytes_max.unwrap_or(FIELD_SECTION_BYTES_MAX),
        );
        let mut encoder = Encoder::new();
        if let Some(remembered) = &config.remembered {
            encoder.set_peer_limits(
                remembered.qpack_table_bytes_max,
                remembered.qpack_blocked_streams_max,
            );
        }
        Self {
            role,
            config,
            local,
            encoder,
            decoder,
            peer_settings: None,
            events: VecDeque::new(),
            output: Output::default(),
            go_away_sent: None,
            requests_end: 0,
            priorities_early: VecDeque::new(),
            section: Vec::new(),
            idle_frame_count: 0,
            reset_count: 0,
        }
    }

    /// The peer's settings, or its earlier ones from when 0-RTT was sent.
    pub(super) fn known_settings(&self) -> Option<&Settings> {
        self.peer_settings.as_ref().or(self.config.remembered.as_ref())
    }

    pub(super) fn section_bytes_max(&self) -> u64 {
        let bytes_max = self.config.settings.field_section_bytes_max;
        bytes_max.unwrap_or(FIELD_SECTION_BYTES_MAX)
    }

    /// Sends a HEADERS frame.
    pub(super) fn send_section(
        &mut self,
        stream: StreamId,
        lines: &[Line<'_>],
    ) -> Result<(), StreamError> {
        let bytes_max = self.known_settings();
        let bytes_max = bytes_max.and_then(|settings| settings.field_section_bytes_max);
        let bytes: u64 = lines.iter().map(Line::size).sum();
        if bytes_max.is_some_and(|bytes_max| bytes > bytes_max) {
            return Err(StreamError::SectionTooLong);
        }
        self.section.clear();
        self.encoder.encode_lines(stream.0, lines, &mut self.section);
        // First the insertions that the section refers to.
        let instructions = self.encoder.take_instructions();
        if !instructions.is_empty() {
            let out = self.output.stage(self.local.encoder);
            out.extend_from_slice(&instructions);
        }
        let out = self.output.stage(stream);
        frame::write_head(out, frame::HEADERS, self.section.len());
        out.extend_from_slice(&self.section);
        Ok(())
    }

    pub(super) fn send_control(&mut self, write: impl FnOnce(&mut bytes::BytesMut)) {
        write(self.output.stage(self.local.control));
    }

    /// Sends our decoder's instructions; once for many sections.
    pub(super) fn send_decoder_instructions(&mut self) {
        let instructions = self.decoder.take_instructions();
        if !instructions.is_empty() {
            let out = self.output.stage(self.local.decoder);
            out.put_slice(&instructions);
        }
    }

    pub(super) fn reset(&mut self, stream: StreamId, code: Code) {
        self.output.push(Transmit::Reset { stream, code });
    }

    pub(super) fn stop(&mut self, stream: StreamId, code: Code) {
        self.output.push(Transmit::Stop { stream, code });
    }

    /// The priority that was sent ahead of a request.
    pub(super) fn take_early_priority(&mut self, of: StreamId) -> Option<Priority> {
        let mut early = self.priorities_early.iter();
        let index = early.position(|(stream, _)| *stream == of)?;
        let (_, priority) = self.priorities_early.remove(index)?;
        Some(priority)
    }

    pub(super) fn keep_early_priority(&mut self, stream: StreamId, priority: Priority) {
        self.take_early_priority(stream);
        if self.priorities_early.len() == PRIORITIES_EARLY_MAX {
            self.priorities_early.pop_front();
        }
        self.priorities_early.push_back((stream, priority));
    }

    /// Counts a frame without effect.
    pub(super) fn idle_frame(&mut self) -> Result<(), ConnectionError> {
        self.idle_frame_count += 1;
        if self.idle_frame_count > self.config.idle_frames_max {
            return Err(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "too many frames without effect",
            ));
        }
        Ok(())
    }

    /// A message or a part of one has arrived.
    pub(super) fn progress(&mut self) {
        self.idle_frame_count = self.idle_frame_count.saturating_sub(IDLE_FRAMES_PER_MESSAGE);
    }

    /// Counts a request that the peer cancelled, or that was malformed: rapid reset (CVE-2023-44487).
    pub(super) fn request_cancelled(&mut self) -> Result<(), ConnectionError> {
        if self.role == Role::Client {
            return Ok(());
        }
        self.reset_count += 1;
        if self.reset_count > self.config.resets_max {
            return Err(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "too many requests were cancelled",
            ));
        }
        Ok(())
    }

    pub(super) fn request_answered(&mut self) {
        self.reset_count = self.reset_count.saturating_sub(1);
    }
}
