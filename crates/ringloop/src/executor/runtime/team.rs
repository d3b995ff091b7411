//! The loops of a runtime by worker number.

use crate::executor::task::core::Hub;
use std::sync::Arc;

/// The loops of a runtime, by number.
#[derive(Debug)]
pub(crate) struct Team {
    pub hubs: Vec<Arc<Hub>>,
}

impl Team {
    /// The team of a loop without a runtime.
    pub fn solo(hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self { hubs: vec![Arc::clone(hub)] })
    }
}

/// A loop's team and worker number.
#[derive(Debug, Clone)]
pub(crate) struct TeamMember {
    pub team: Arc<Team>,
    pub worker: usize,
}
