//! Keying material without rustls' connection.
//!
//! rustls gives it through a connection, and keeps nothing of it that outlives one. The secret that it comes from
//! (RFC 8446 §7.5) is told to the configuration's key log while the connection reads: so the log of a server's
//! configuration is ours, and hands on to the program's ([`Overheard`]).
//!
//! Owns: the secret that the session which this thread drives has told, until that call is over; what is derived
//! from it. Called by: `session`. Never does: tell the program's key log more, or in another order, than rustls
//! would.

use quinn_proto::crypto::ExportKeyingMaterialError;
use rustls::crypto::tls13::OkmBlock;
use rustls::{KeyLog, Tls13CipherSuite};
use std::cell::Cell;
use std::sync::Arc;

/// What rustls calls the secret, as key log files do.
const LABEL: &str = "EXPORTER_SECRET";

thread_local! {
    static HEARD: Cell<Option<OkmBlock>> = const { Cell::new(None) };
}

/// The program's key log; the exporter's secret stops here on its way.
#[derive(Debug)]
pub(super) struct Overheard(pub Arc<dyn KeyLog>);

impl KeyLog for Overheard {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == LABEL {
            HEARD.set(Some(OkmBlock::new(secret)));
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

/// What was heard for the session around this one: a program's key log or verifier may drive another.
struct Around(Option<OkmBlock>);

impl Drop for Around {
    fn drop(&mut self) {
        HEARD.set(self.0.take());
    }
}

/// Drive a session, and give the exporter's secret, if it told it meanwhile.
pub(super) fn overhear<T>(drive: impl FnOnce() -> T) -> (T, Option<OkmBlock>) {
    let _around = Around(HEARD.take());
    let result = drive();
    (result, HEARD.take())
}

#[cfg(test)]
pub(super) fn heard() -> Option<OkmBlock> {
    HEARD.take()
}

/// What keying material comes from. The secret is overwritten when it goes.
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
        // As rustls has it.
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

/// `HKDF-Expand-Label` (RFC 8446 §7.1). A label that is too long for its length's byte is taken as rustls takes it,
/// so that both ends agree.
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
