//! The descriptors that `add_reader` and `add_writer` watch.
//!
//! Owns: their table. Called by: `watchers`.

use ringloop::embed::sys::fd::RawFd;
use std::collections::HashMap;

use pyo3::prelude::*;
use ringloop::embed::sys::interest::Interest;

use super::handlers::Watch;
use crate::ffi::{Obj, Visited, Visitor};

/// Direction of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `add_reader`.
    Read,
    /// `add_writer`.
    Write,
}

impl Direction {
    pub fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READ,
            Self::Write => Interest::WRITE,
        }
    }
}

/// All watchers of a loop.
#[derive(Default)]
pub struct Watchers {
    pub polls: HashMap<(RawFd, Direction), Watch>,
    /// File objects passed instead of numbers, while a direction is watched.
    objects: HashMap<RawFd, Obj>,
}

impl Watchers {
    pub fn has(&self, fd: RawFd) -> bool {
        [Direction::Read, Direction::Write]
            .iter()
            .any(|&direction| self.polls.contains_key(&(fd, direction)))
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.objects.values().try_for_each(|object| visitor.visit(object))
    }

    /// Returns the watch that it replaces, and an object to drop outside the cell. Of two objects of one
    /// descriptor the first is known.
    pub fn add(
        &mut self,
        fd: RawFd,
        direction: Direction,
        watch: Watch,
        object: Option<Obj>,
    ) -> (Option<Watch>, Option<Obj>) {
        let old = self.polls.insert((fd, direction), watch);
        let is_known = old.is_none() && self.objects.contains_key(&fd);
        let left = match object {
            Some(object) if is_known => Some(object),
            Some(object) => self.objects.insert(fd, object),
            None => None,
        };
        (old, left)
    }

    /// The caller drops the object outside the cell.
    pub fn remove(&mut self, fd: RawFd, direction: Direction) -> Option<(Watch, Option<Obj>)> {
        let watch = self.polls.remove(&(fd, direction))?;
        let object = if self.has(fd) { None } else { self.objects.remove(&fd) };
        Some((watch, object))
    }

    pub fn descriptor_of(&self, object: Borrowed<'_, '_, PyAny>) -> Option<RawFd> {
        let mut all = self.objects.iter();
        all.find(|(_, known)| known.as_py().is(&*object)).map(|(&fd, _)| fd)
    }
}
