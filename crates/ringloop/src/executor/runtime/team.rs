//! The loops of a runtime by number, and which of them a loop is.

use crate::executor::task::core::Hub;
use std::sync::Arc;

/// The loops of a runtime, by number.
#[derive(Debug)]
pub(crate) struct Team {
    pub hubs: Vec<Arc<Hub>>,
}

impl Team {
    /// A loop by itself.
    pub fn of_one(hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            hubs: vec![Arc::clone(hub)],
        })
    }
}

/// Which of a runtime's workers a loop is.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub team: Arc<Team>,
    pub worker: usize,
}
