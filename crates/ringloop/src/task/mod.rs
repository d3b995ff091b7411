//! Beside layer 4: groups of tasks, and values that belong to a task.
//!
//! Owns: [`JoinSet`], task locals ([`task_local!`](crate::task_local)), and by the feature `task-dump`
//! the list of tasks. Called by: applications. It is made of [`crate::spawn`]; the executor knows
//! nothing of it.

mod join_set;
mod local;

pub use join_set::JoinSet;
pub use local::{LocalKey, NotSet};

#[cfg(feature = "task-dump")]
pub use crate::executor::{TaskInfo, dump};
