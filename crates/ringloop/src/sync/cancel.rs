//! Cancellation that is passed down a tree of tokens.
//!
//! Owns: the tree, under one cell: each token's state, its children, the line of its
//! waiters. A token without handles stays while it has children, as its ancestors' cancellation passes
//! through it.

use super::place::Place;
use super::semaphore::Woken;
use super::waiters::{Ticket, Waiters};
use crate::executor::waiting;
use crate::future::{Either, select};
use crate::slab::{Key, Slab};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

#[derive(Debug, Default)]
struct Tree(Slab<Node>);

#[derive(Debug)]
struct Node {
    handles: usize,
    is_cancelled: bool,
    /// The parent, and the index among its children.
    parent: Option<(Key, usize)>,
    children: Vec<Key>,
    waiters: Waiters,
}

impl Tree {
    fn add(&mut self, parent: Option<Key>) -> Key {
        let parent = parent.and_then(|key| Some((key, self.0.get(key)?)));
        let is_cancelled = parent.is_some_and(|(_, parent)| parent.is_cancelled);
        let parent = parent.map(|(key, parent)| (key, parent.children.len()));
        let child = self.0.insert(Node {
            handles: 1,
            is_cancelled,
            parent,
            children: Vec::new(),
            waiters: Waiters::default(),
        });
        if let Some((key, _)) = parent
            && let Some(parent) = self.0.get_mut(key)
        {
            parent.children.push(child);
        }
        child
    }

    /// Cancels a token and its descendants; the caller wakes who waits for them.
    fn cancel(&mut self, key: Key) -> Woken {
        let mut woken = Woken::default();
        let mut left = vec![key];
        while let Some(key) = left.pop() {
            if let Some(node) = self.0.get_mut(key)
                && !std::mem::replace(&mut node.is_cancelled, true)
            {
                woken.add_all(&mut node.waiters, 1);
                left.extend(&node.children);
            }
        }
        woken
    }

    /// Removes a token that has neither handles nor children, and then its parent if that has none.
    fn remove_unused(&mut self, mut key: Key) {
        while let Some(node) = self.0.get(key)
            && node.handles == 0
            && node.children.is_empty()
        {
            let parent = node.parent;
            self.0.remove(key);
            let Some((parent, index)) = parent else {
                return;
            };
            let Some(siblings) = self.0.get_mut(parent).map(|parent| &mut parent.children) else {
                return;
            };
            siblings.swap_remove(index);
            if let Some(moved) = siblings.get(index).copied()
                && let Some(moved) = self.0.get_mut(moved)
            {
                moved.parent = Some((parent, index));
            }
            key = parent;
        }
    }
}

/// Tells tasks to stop; see [`crate::sync::CancellationToken`] and
/// [`crate::sync::local::CancellationToken`]. A clone is the same token.
///
/// ```
/// use ringloop::sync::local::CancellationToken;
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let server = CancellationToken::new();
/// let connection = server.child_token();
/// let task = ringloop::spawn(async move {
///     ringloop::select! {
///         () = connection.cancelled() => "stopped",
///         () = std::future::pending() => "done",
///     }
/// });
/// server.cancel();
/// assert_eq!(task.await.unwrap(), "stopped");
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct CancellationToken<P: Place> {
    tree: P::Shared<P::Cell<Tree>>,
    key: Key,
}

impl<P: Place> Default for CancellationToken<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Place> CancellationToken<P> {
    /// A token without a parent.
    pub fn new() -> Self {
        let mut tree = Tree::default();
        let key = tree.add(None);
        Self { tree: P::share(P::cell(tree)), key }
    }

    /// A token that is cancelled with this one, or before it by itself. An unused one is freed at once.
    #[must_use]
    pub fn child_token(&self) -> Self {
        let key = P::with(&self.tree, |tree| tree.add(Some(self.key)));
        Self { tree: self.tree.clone(), key }
    }

    /// Cancels this token and its descendants, for good.
    pub fn cancel(&self) {
        P::with(&self.tree, |tree| tree.cancel(self.key)).wake();
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        P::with(&self.tree, |tree| tree.0.get(self.key).is_some_and(|node| node.is_cancelled))
    }

    /// Waits until it is cancelled; owns a clone of the token.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn cancelled(&self) -> Cancelled<P> {
        Cancelled { token: self.clone(), ticket: None }
    }

    /// Runs `future` until it is ready or this token is cancelled; `None` in the latter case, also if
    /// both are so at once.
    ///
    /// # Cancel safety
    /// That of `future`, which is dropped by a cancellation.
    pub async fn run_until_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        match select(self.cancelled(), future).await {
            Either::Left(()) => None,
            Either::Right(output) => Some(output),
        }
    }

    /// A guard that cancels this token when it is dropped.
    pub fn drop_guard(self) -> DropGuard<P> {
        DropGuard(Some(self))
    }
}

impl<P: Place> Clone for CancellationToken<P> {
    fn clone(&self) -> Self {
        P::with(&self.tree, |tree| {
            if let Some(node) = tree.0.get_mut(self.key) {
                node.handles += 1;
            }
        });
        Self { tree: self.tree.clone(), key: self.key }
    }
}

impl<P: Place> Drop for CancellationToken<P> {
    fn drop(&mut self) {
        P::with(&self.tree, |tree| {
            if let Some(node) = tree.0.get_mut(self.key) {
                node.handles -= 1;
            }
            tree.remove_unused(self.key);
        });
    }
}

/// Waits for the cancellation of a token.
#[must_use = "await it to wait for the cancellation"]
pub struct Cancelled<P: Place> {
    token: CancellationToken<P>,
    ticket: Option<Ticket>,
}

impl<P: Place> Unpin for Cancelled<P> {}

impl<P: Place> Future for Cancelled<P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { token, ticket } = self.get_mut();
        P::with(&token.tree, |tree| {
            let Some(node) = tree.0.get_mut(token.key).filter(|node| !node.is_cancelled) else {
                return Poll::Ready(());
            };
            match *ticket {
                Some(place) => {
                    node.waiters.poll(place, cx.waker());
                }
                None => *ticket = Some(node.waiters.push(cx.waker(), 1)),
            }
            waiting("a cancellation")
        })
    }
}

impl<P: Place> Drop for Cancelled<P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.token.tree, |tree| {
                tree.0.get_mut(self.token.key).map(|node| node.waiters.leave(ticket))
            });
        }
    }
}

/// Cancels its token when it is dropped; by `CancellationToken::drop_guard`.
#[must_use = "dropping it cancels the token"]
pub struct DropGuard<P: Place>(Option<CancellationToken<P>>);

impl<P: Place> DropGuard<P> {
    /// The token, which is not cancelled.
    #[expect(clippy::missing_panics_doc, reason = "the token is there until the guard's end")]
    pub fn disarm(mut self) -> CancellationToken<P> {
        self.0.take().expect("the token is there until the guard's end")
    }
}

impl<P: Place> Drop for DropGuard<P> {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}

impl<P: Place> fmt::Debug for CancellationToken<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

impl<P: Place> fmt::Debug for Cancelled<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").field("token", &self.token).finish_non_exhaustive()
    }
}

impl<P: Place> fmt::Debug for DropGuard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DropGuard").field(&self.0).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::sync::local::CancellationToken;

    #[test]
    fn tokens_are_freed_with_their_handles_and_children() {
        let root = CancellationToken::new();
        let count = || root.tree.borrow().0.len();
        let kept: Vec<_> = (0..5).map(|_| root.child_token()).collect();
        for _ in 0..3 {
            let leaf = root.child_token().child_token();
            assert_eq!(count(), 8);
            drop(leaf);
            assert_eq!(count(), 6);
        }
        // In an order that moves siblings.
        for (index, child) in kept.into_iter().enumerate().rev().step_by(2) {
            drop(child);
            assert!(count() >= 1, "{index}");
        }
        assert_eq!(count(), 1);
        let child = root.child_token();
        let grandchild = child.child_token();
        drop(child);
        assert_eq!(count(), 3, "its child needs it");
        root.cancel();
        assert!(grandchild.is_cancelled());
        drop(grandchild);
        assert_eq!(count(), 1);
    }
}
