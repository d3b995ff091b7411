//! Keying material without rustls' connection.
//!
//! rustls exports keying material only through a connection. The exporter secret behind it (RFC
//! 8446 §7.5) is passed to the configuration's key log while the connection reads; so a server's
//! configuration has our key log, which forwards to the application's ([`ExporterKeyLog`]).
//!
//! Owns: the exporter secret of the session that this thread drives, until that call ends; what is
//! derived from it. Called by: `session`. The application's key log sees the same lines in the same
//! order as with rustls alone.

use quinn_proto::crypto::ExportKeyingMaterialError;
use rustls::crypto::tls13::OkmBlock;
use rustls::{KeyLog, Tls13CipherSuite};
use std::cell::Cell;
use std::sync::Arc;

/// The secret's label in rustls and key log files.
const LABEL: &str = "EXPORTER_SECRET";

thread_local! {
    static CAPTURED: Cell<Option<OkmBlock>> = const { Cell::new(None) };
}

/// Forwards to the application's key log, and captures the exporter secret.
#[derive(Debug)]
pub(super) struct ExporterKeyLog(pub Arc<dyn KeyLog>);

impl KeyLog for ExporterKeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == LABEL {
            CAPTURED.set(Some(OkmBlock::new(secret)));
            if !self.0.will_log(label) {
                return;
            }
        }
        self.0.log(label, client_random, secret);
    }

    fn will_log(&self, label: &str) -> bool {
        label == LABEL || self.0.will_log(label)
    }
}

/// The secret captured for the outer session: an application's key log or verifier may drive
/// another session.
struct Restore(Option<OkmBlock>);

impl Drop for Restore {
    fn drop(&mut self) {
        CAPTURED.set(self.0.take());
    }
}

/// Drives a session, and returns the exporter secret if it was reported meanwhile.
pub(super) fn capture<T>(drive: impl FnOnce() -> T) -> (T, Option<OkmBlock>) {
    let _restore = Restore(CAPTURED.take());
    let result = drive();
    (result, CAPTURED.take())
}

#[cfg(test)]
pub(super) fn captured() -> Option<OkmBlock> {
    CAPTURED.take()
}

/// Source of keying material. The secret is overwritten on drop.
pub(super) struct Exporter {
    secret: OkmBlock,
    suite: &'static Tls13CipherSuite,
}

impl Exporter {
    pub(super) fn new(secret: OkmBlock, suite: &'static Tls13CipherSuite) -> Self {
        Self { secret, suite }
    }

    /// RFC 8446 §7.5: `HKDF-Expand-Label(Derive-Secret(secret, label, ""), "exporter", Hash(context), length)`.
    pub(super) fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // Same as rustls.
        if output.is_empty() {
            return Err(ExportKeyingMaterialError);
        }
        let (hash, hkdf) = (self.suite.common.hash_provider, self.suite.hkdf_provider);
        let expander = hkdf.expander_for_okm(&self.secret);
        let (nothing, context) = (hash.hash(&[]), hash.hash(context));
        let derived = expanded(expander.hash_len(), label, nothing.as_ref(), |info| {
            expander.expand_block(info)
        });
        let expander = hkdf.expander_for_okm(&derived);
        expanded(output.len(), b"exporter", context.as_ref(), |info| {
            expander.expand_slice(info, output)
        })
        .map_err(|_| ExportKeyingMaterialError)
    }
}

/// `HKDF-Expand-Label` (RFC 8446 §7.1). A label that is too long for its length byte is encoded as
/// rustls does it, so that both ends agree.
fn expanded<T>(len: usize, label: &[u8], context: &[u8], expand: impl FnOnce(&[&[u8]]) -> T) -> T {
    const PREFIX: &[u8] = b"tls13 ";
    let label_len = (PREFIX.len() + label.len()) as u8;
    expand(&[
        &(len as u16).to_be_bytes(),
        &[label_len],
        PREFIX,
        label,
        &[context.len() as u8],
        context,
    ])
}
