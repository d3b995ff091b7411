//! Decisions about a new client: accept, refuse, ask for address validation (Retry), or ignore.

use super::amplification::AmplificationLimit;
use super::resets::{self, Resets};
use super::{Core, Handle, Incoming, contain};
use crate::config::ServerConfig;
use crate::error::ConnectionError;
use crate::proto::{self, version};
use crate::qlog::{self, Trace, VantagePoint};
use std::sync::Arc;
use std::time::Instant;

impl Core {
    /// Starts the handshake with a client; `config` overrides the core's configuration as of the
    /// client's arrival.
    ///
    /// # Errors
    /// What was wrong with its first packet; the client gets the error too.
    pub fn accept(
        &mut self,
        now: Instant,
        mut incoming: Incoming,
        config: Option<ServerConfig>,
    ) -> Result<Handle, ConnectionError> {
        let (config, kept, qlog) = match config {
            Some(config) => (Some(Arc::new(config.config)), Arc::new(config.kept), config.qlog),
            None => (None, Arc::clone(&incoming.kept), incoming.qlog.take()),
        };
        let log = qlog.and_then(|qlog| {
            let trace = Trace {
                vantage_point: VantagePoint::Server,
                original_id: incoming.inner.orig_dst_cid().to_string(),
                remote: incoming.remote_address(),
            };
            qlog.open(now, &trace)
        });
        let original = *incoming.inner.orig_dst_cid();
        let amplification =
            (!incoming.is_validated()).then(|| Box::new(AmplificationLimit::new(incoming.len)));
        self.forget_ids();
        let mut buf = Vec::new();
        let resets = Resets::of(&kept, proto::Side::Server);
        let accepted = resets::announced(resets.as_deref(), || {
            qlog::with_log(log.clone(), || {
                let inner = *incoming.inner;
                contain::attempt(|| {
                    let accepted = self.endpoint.accept(inner, now, &mut buf, config);
                    accepted.map_err(Box::new)
                })
            })
        });
        self.clients.accepted += 1;
        let accepted = accepted.inspect_err(|lost| self.clients.failed.count(lost))?;
        match accepted {
            Ok(made) => {
                let handle = self.insert(now, made, &original, &kept, log);
                if let Some(live) = self.connections.get_mut(handle.0) {
                    live.amplification = amplification;
                    live.resets = resets;
                    live.settle_resets();
                }
                Ok(handle)
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(&transmit, buf);
                }
                let cause = error.cause.into();
                self.clients.failed.count(&cause);
                Err(cause)
            }
        }
    }

    /// Refuses a client.
    pub fn refuse(&mut self, incoming: Incoming) {
        self.clients.refused += 1;
        let mut buf = Vec::new();
        let refused = contain::attempt(|| self.endpoint.refuse(*incoming.inner, &mut buf));
        if let Ok(transmit) = refused {
            self.respond(&transmit, buf);
        }
    }

    /// Asks a client to validate its address (RFC 9000 §8.1.2); keeps no state meanwhile.
    ///
    /// # Errors
    /// Returns the client if it already answered a Retry ([`Incoming::may_retry`]).
    pub fn retry(&mut self, incoming: Incoming) -> Result<(), Incoming> {
        let mut buf = Vec::new();
        let Incoming { inner, len, kept, qlog } = incoming;
        // After a panic the client gets no answer and retransmits.
        let Ok(retried) = contain::attempt(|| self.endpoint.retry(*inner, &mut buf)) else {
            return Ok(());
        };
        match retried {
            Ok(transmit) => {
                self.clients.retried += 1;
                if version::is_v2(&buf) {
                    buf[0] = version::to_v2(buf[0]);
                }
                self.respond(&transmit, buf);
                Ok(())
            }
            Err(error) => Err(Incoming { inner: Box::new(error.into_incoming()), len, kept, qlog }),
        }
    }

    /// Drops a client without an answer.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.endpoint.ignore(*incoming.inner);
    }
}
