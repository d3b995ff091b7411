//! Keys derived from an endpoint's secrets, for address tokens and stateless resets.

#[cfg(not(feature = "ring"))]
use aws_lc_rs::{hkdf, hmac};
// The engine uses ring's types if both features are on.
#[cfg(feature = "ring")]
use ring::{hkdf, hmac};

use super::provider;
use crate::error::ConfigError;
use std::sync::Arc;

/// The token key of a random secret.
pub(crate) fn random() -> Result<Arc<hkdf::Prk>, ConfigError> {
    let mut secret = [0; 64];
    let filled = provider().secure_random.fill(&mut secret);
    filled.map_err(|_| ConfigError::OutOfBounds("the system has no random numbers"))?;
    Ok(from_secret(&secret))
}

/// The token key of a secret.
pub(crate) fn from_secret(secret: &[u8]) -> Arc<hkdf::Prk> {
    Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"ringloop-quic token").extract(secret))
}

/// The stateless reset key of a secret.
pub(crate) fn reset_key(secret: &[u8]) -> Arc<hmac::Key> {
    Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret))
}

/// The key by which endpoints with the same secret recognise their connection ids.
pub(crate) fn connection_id_key(secret: &[u8]) -> u64 {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, b"ringloop-quic connection id");
    tag.as_ref().iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte))
}
